// The cut of kernels over a matrix into pieces for the compute threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/dtype.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {

// Rows of a piece; pieces are whole rows of `columns` elements.
[[nodiscard]] inline std::int64_t row_grain(DType dtype, std::int64_t columns) {
  return std::max<std::int64_t>(
      1, grain_elements(size_of(dtype)) / std::max<std::int64_t>(1, columns));
}

// Columns of a piece of a sum over `rows`: at most one piece per thread, at least 64 KiB of input,
// whole cache lines of the sums.
[[nodiscard]] inline std::int64_t column_grain(std::int64_t columns, std::int64_t rows) {
  const std::int64_t per_thread = (columns + compute_threads() - 1) / compute_threads();
  const std::int64_t least = grain_elements(4) / std::max<std::int64_t>(1, rows);
  return round_up(std::max({per_thread, least, std::int64_t{1}}), 16);
}

}  // namespace sluice
