#include "base/counted.hpp"

namespace sluice {

std::string counted(std::int64_t count, std::string_view noun) {
  std::string text = std::to_string(count) + " ";
  text += noun;
  return count == 1 ? text : text + "s";
}

}  // namespace sluice
