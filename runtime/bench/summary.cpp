#include "runtime/bench/summary.hpp"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

double middle_of_sorted(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

}  // namespace

Summary summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  Summary summary;
  summary.median = middle_of_sorted(values);
  summary.best = values.front();
  summary.count = static_cast<int>(values.size());
  for (double& value : values) value = std::abs(value - summary.median);
  std::sort(values.begin(), values.end());
  summary.mad = middle_of_sorted(values);
  return summary;
}

}  // namespace sluice
