// Whether the loss falls: the mean over the last h steps less the mean over the h steps before,
// with h = 50, or half of the steps so far while these are fewer than 100. Known from the tenth
// step on. The change is clear if it exceeds two standard errors of the difference of the two
// means. Steps without an update, and losses that are not finite, do not count.
#pragma once

#include <cmath>
#include <cstddef>
#include <deque>
#include <optional>

namespace sluice {

struct LossTrend {
  double change = 0;
  double error = 0;  // standard error of the change

  [[nodiscard]] bool is_clear() const { return std::abs(change) > 2 * error; }
};

// Not thread-safe.
class LossTrendMeter {
 public:
  static constexpr std::size_t kWindow = 50;  // steps of each mean
  static constexpr std::size_t kFewest = 10;  // steps before the trend is known

  void add(double loss);
  [[nodiscard]] std::optional<LossTrend> trend() const;

 private:
  std::deque<double> losses_;  // the last 2 kWindow
};

}  // namespace sluice
