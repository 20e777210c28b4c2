// Reductions in a fixed order.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// Elements of one block of sum_squares.
inline constexpr std::int64_t kSumBlock = 4096;

// Sum of x[i]^2 in double, without an fp32 copy of x. Uses 32 lanes within a block of kSumBlock
// elements, then adds lanes and blocks pairwise. Bits do not depend on instruction set or threads.
// They depend on the range: the sums of two halves may differ in the last bits from the sum of the
// whole. Ranks that must agree must sum the same ranges.
[[nodiscard]] double sum_squares(const void* x, DType dtype, std::int64_t n);
[[nodiscard]] inline double sum_squares(const float* x, std::int64_t n) {
  return sum_squares(x, DType::kFloat32, n);
}

// The sums of the blocks, ceil(n / kSumBlock) of them. For a buffer that comes in pieces, where
// every piece but the last is a multiple of kSumBlock: pairwise_sum of all block sums equals
// sum_squares of the whole buffer.
void sum_squares_blocks(const void* x, DType dtype, std::int64_t n, double* sums);

// Adds values pairwise, in a tree that depends on `count` alone.
[[nodiscard]] double pairwise_sum(const double* values, std::int64_t count);

// Index of the first infinity or NaN, or -1.
[[nodiscard]] std::int64_t first_non_finite(const void* x, DType dtype, std::int64_t n);
[[nodiscard]] inline bool all_finite(const void* x, DType dtype, std::int64_t n) {
  return first_non_finite(x, dtype, n) < 0;
}

}  // namespace sluice
