// Reductions with a fixed order.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// Elements of one block of sum_squares.
inline constexpr std::int64_t kSumBlock = 4096;

// Sum of x[i]^2 in double, x read as it is (no copy in fp32): 32 lanes within a block of kSumBlock
// elements, lanes and then blocks folded pairwise. The bits depend on the values and on where the
// buffer begins, not on the instruction set or the number of threads. A buffer cut in two does not
// add up to the same last bits: ranks that must agree have to sum the same ranges.
[[nodiscard]] double sum_squares(const void* x, DType dtype, std::int64_t n);
[[nodiscard]] inline double sum_squares(const float* x, std::int64_t n) {
  return sum_squares(x, DType::kFloat32, n);
}

// The blocks' sums alone, ceil(n / kSumBlock) of them: for a buffer that comes in pieces, each but
// the last a multiple of kSumBlock. pairwise_sum of all of them is the sum_squares of the whole.
void sum_squares_blocks(const void* x, DType dtype, std::int64_t n, double* sums);

// Adds count values pairwise (a tree that depends on count alone).
[[nodiscard]] double pairwise_sum(const double* values, std::int64_t count);

// Index of the first infinity or NaN, -1 where all are finite.
[[nodiscard]] std::int64_t first_non_finite(const void* x, DType dtype, std::int64_t n);
[[nodiscard]] inline bool all_finite(const void* x, DType dtype, std::int64_t n) {
  return first_non_finite(x, dtype, n) < 0;
}

}  // namespace sluice
