#include "tests/gpu/emulated/schedule.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace emulated_gpu {

Schedule::Schedule(const std::string& text, const std::string& kernel) {
  if (text == "early") return;
  kind_ = text == "late" ? Kind::kDescending : Kind::kShuffled;
  random_.seed(std::hash<std::string>{}(text + ' ' + kernel));
}

void Schedule::arrange(std::vector<std::uint32_t>& order, std::uint32_t n) {
  order.resize(n);
  std::iota(order.begin(), order.end(), 0U);
  if (kind_ == Kind::kDescending) std::reverse(order.begin(), order.end());
  if (kind_ == Kind::kShuffled) std::shuffle(order.begin(), order.end(), random_);
}

}  // namespace emulated_gpu
