#include "runtime/report/downsample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Bin {
  double sum = 0;
  std::size_t finite = 0;
  float least = kNan, most = kNan;

  void add(float value) {
    if (std::isnan(value)) return;
    least = std::isnan(least) ? value : std::min(least, value);
    most = std::isnan(most) ? value : std::max(most, value);
    if (!std::isfinite(value)) return;
    sum += static_cast<double>(value);
    ++finite;
  }
  // The mean of equal values is exactly the value.
  [[nodiscard]] float mean() const {
    if (finite == 0) return kNan;
    return least == most ? least : static_cast<float>(sum / static_cast<double>(finite));
  }
};

}  // namespace

std::size_t steps_per_bin(std::size_t steps, std::size_t most) {
  std::size_t per_bin = 1;
  while ((steps + per_bin - 1) / per_bin > most) per_bin *= 2;
  return per_bin;
}

Curve downsample(std::span<const float> values, std::size_t per_bin) {
  Curve curve;
  curve.constant = !values.empty();
  for (std::size_t begin = 0; begin < values.size(); begin += per_bin) {
    Bin bin;
    for (const float value : values.subspan(begin, std::min(per_bin, values.size() - begin))) {
      bin.add(value);
      curve.known = curve.known || !std::isnan(value);
      curve.constant = curve.constant && value == values.front();
    }
    curve.mean.push_back(per_bin == 1 ? values[begin] : bin.mean());
    if (per_bin == 1) continue;
    curve.least.push_back(bin.least);
    curve.most.push_back(bin.most);
  }
  return curve;
}

float median(std::span<const float> values) {
  std::vector<float> known;
  std::copy_if(values.begin(), values.end(), std::back_inserter(known),
               [](float value) { return !std::isnan(value); });
  if (known.empty()) return kNan;
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
  std::nth_element(known.begin(), middle, known.end());
  return *middle;
}

}  // namespace sluice
