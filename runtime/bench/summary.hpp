// What repeated measurements say: the middle and how far from it they lie. Pure; thread-safe.
#pragma once

#include <vector>

namespace sluice {

struct Summary {
  double median = 0;
  double mad = 0;   // median absolute deviation from the median
  double best = 0;  // the smallest
  int count = 0;
};

// Of the values' own unit. All zero where there are none.
[[nodiscard]] Summary summarize(std::vector<double> values);

}  // namespace sluice
