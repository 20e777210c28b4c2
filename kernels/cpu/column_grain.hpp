// The cut of a token table's gradient into pieces for threads. Internal to the embedding kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bytes.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {

// Columns of a piece. There is at most one piece per thread, because each piece walks through all
// tokens. A piece has whole cache lines of the table and at least 64 KiB of gradient.
inline std::int64_t column_grain(std::int64_t hidden, std::int64_t tokens) {
  const std::int64_t per_thread = (hidden + compute_threads() - 1) / compute_threads();
  const std::int64_t least = (grain_elements(4) + tokens - 1) / tokens;
  return round_up(std::max({per_thread, least, std::int64_t{1}}), 16);
}

}  // namespace sluice
