// The rate that "% of peak" and mfu are a share of: what matrix products reached when they were
// measured at start, or more where a step shows that they reach more. A machine that was busy at
// start measures too little. Not thread-safe.
#pragma once

#include <algorithm>

namespace sluice {

class PeakRate {
 public:
  explicit PeakRate(double measured) : flops_per_s_(measured) {}

  [[nodiscard]] double flops_per_s() const { return flops_per_s_; }
  // Of the peak, 0..1. A rate above the peak is the peak from now on.
  [[nodiscard]] double share(double achieved) {
    flops_per_s_ = std::max(flops_per_s_, achieved);
    return flops_per_s_ > 0 ? achieved / flops_per_s_ : 0;
  }

 private:
  double flops_per_s_;
};

}  // namespace sluice
