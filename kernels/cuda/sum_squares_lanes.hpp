// The part of sum_squares.cu that also runs on the host, for tests without a GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/device_body.hpp"

#ifdef SLUICE_DEVICE_CODE
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice::cuda {

inline constexpr int kSquareLanes = 32;

// Lane `lane`'s share of a block's sum of squares: of each 32 values the lane's own. As
// kernels/cpu, a rest of fewer than 16 values belongs to the upper 16 lanes. A square of a float is
// exact in double, so only the additions round, and a fused sum has the same bits. Consumer cards
// have few units for double: fused, a value takes two of their operations, not three.
SLUICE_HOST_DEVICE inline double lane_squares(const float* values, std::int64_t n, int lane) {
  constexpr int kHalf = kSquareLanes / 2;
  double sum = 0;
  const std::int64_t whole = n / kSquareLanes * kSquareLanes;
  for (std::int64_t i = lane; i < whole; i += kSquareLanes) {
    const double x = values[i];
    sum = std::fma(x, x, sum);
  }
  const std::int64_t rest = n - whole;
  const std::int64_t at = rest < kHalf ? lane - kHalf : lane;
  if (at >= 0 && at < rest) {
    const double x = values[whole + at];
    sum = std::fma(x, x, sum);
  }
  return sum;
}

}  // namespace sluice::cuda
