#include "runtime/data/blend_plan.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace sluice {
namespace {

constexpr int kWeightBits = 52;  // those of a double, so that a weight keeps its value

__extension__ using Wide = __int128;

// draw * left / total, rounded to the nearest, up in the middle. 63 + 1 + 53 bits are enough.
std::int64_t share_of(std::int64_t draw, std::int64_t left, std::int64_t total) {
  return static_cast<std::int64_t>((Wide{2} * draw * left + total) / (Wide{2} * total));
}

}  // namespace

BlendPlan::BlendPlan(const std::vector<double>& weights) : sums_{0} {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  check(!weights.empty() && sum > 0 && std::isfinite(sum), "BlendPlan: weights without a sum");
  for (const double weight : weights) {
    check(weight > 0, "BlendPlan: a weight that is not above 0");
    const std::int64_t units = std::llround(std::ldexp(weight / sum, kWeightBits));
    sums_.push_back(sums_.back() + std::max<std::int64_t>(units, 1));
  }
}

BlendDraw BlendPlan::at(std::int64_t draw) const {
  check(draw >= 0, "BlendPlan::at a draw below 0");
  std::size_t first = 0, end = sums_.size() - 1;
  while (end - first > 1) {
    const std::size_t middle = first + (end - first) / 2;
    const std::int64_t left = sums_[middle] - sums_[first], total = sums_[end] - sums_[first];
    const std::int64_t before = share_of(draw, left, total);
    if (share_of(draw + 1, left, total) > before) {
      end = middle;
      draw = before;
    } else {
      first = middle;
      draw -= before;
    }
  }
  return {first, draw};
}

}  // namespace sluice
