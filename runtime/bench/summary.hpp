// Median and deviation of repeated measurements. Pure; thread-safe.
#pragma once

#include <vector>

namespace sluice {

struct Summary {
  double median = 0;
  double mad = 0;   // median absolute deviation from the median
  double best = 0;  // the smallest
  int count = 0;
};

// In the unit of the values. All zero without values.
[[nodiscard]] Summary summarize(std::vector<double> values);

}  // namespace sluice
