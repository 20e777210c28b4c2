// Fewer points that lose no peak: each bin of consecutive steps keeps its mean and its extremes.
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sluice {

// Steps of a bin, a power of two, so bins stay the same while a run grows: 1 up to `most` steps.
[[nodiscard]] std::size_t steps_per_bin(std::size_t steps, std::size_t most = 4000);

struct Curve {
  std::vector<float> mean;
  // Extremes of each bin; empty: each bin is one step. NaN where all values of the bin are NaN.
  std::vector<float> least, most;
  bool known = false;     // some value is not NaN
  bool constant = false;  // all values are known and equal
};
// Values that are NaN count for nothing; infinite ones count for the extremes alone.
[[nodiscard]] Curve downsample(std::span<const float> values, std::size_t per_bin);

// The median of the values that are not NaN; NaN if there are none.
[[nodiscard]] float median(std::span<const float> values);

}  // namespace sluice
