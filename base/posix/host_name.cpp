#include "base/posix/host_name.hpp"

#include <unistd.h>

#include <array>

namespace sluice {

std::string host_name() {
  std::array<char, 256> name{};
  const bool named = ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
  return named ? name.data() : "localhost";
}

}  // namespace sluice
