// The part of sum_squares.cu that also runs on the host, for tests without a GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

inline constexpr int kSquareLanes = 32;

// Lane `lane`'s share of a block's sum of squares: of each 32 values the lane's own. As
// kernels/cpu, a rest of fewer than 16 values belongs to the upper 16 lanes. A square of a float,
// or of 16 bits, is exact in double, so only the additions round, and a fused sum has the same
// bits. Consumer cards have few units for double: fused, a value takes two of their operations, not
// three.
template <class T>
SLUICE_BODY double lane_squares(const T* values, std::int64_t n, int lane) {
  constexpr int kHalf = kSquareLanes / 2;
  double sum = 0;
  const std::int64_t whole = n / kSquareLanes * kSquareLanes;
  for (std::int64_t i = lane; i < whole; i += kSquareLanes) {
    const double x = widen(values[i]);
    sum = std::fma(x, x, sum);
  }
  const std::int64_t rest = n - whole;
  const std::int64_t at = rest < kHalf ? lane - kHalf : lane;
  if (at >= 0 && at < rest) {
    const double x = widen(values[whole + at]);
    sum = std::fma(x, x, sum);
  }
  return sum;
}

}  // namespace sluice::cuda
