// The reference rate of "% of peak" and mfu: the rate of matrix products measured at start, raised
// if a step exceeds it. A machine that is busy at start measures too low a rate. Not thread-safe.
#pragma once

#include <algorithm>

namespace sluice {

class PeakRate {
 public:
  explicit PeakRate(double measured) : flops_per_s_(measured) {}

  [[nodiscard]] double flops_per_s() const { return flops_per_s_; }
  // Share of the peak, 0..1. A rate above the peak becomes the peak.
  [[nodiscard]] double share(double achieved) {
    flops_per_s_ = std::max(flops_per_s_, achieved);
    return flops_per_s_ > 0 ? achieved / flops_per_s_ : 0;
  }

 private:
  double flops_per_s_;
};

}  // namespace sluice
