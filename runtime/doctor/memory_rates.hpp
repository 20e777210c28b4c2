// Rates of the host's memory. Bytes a second, medians.
#pragma once

#include <cstdint>

namespace sluice {

struct MemoryRates {
  double copy_bps = 0;                       // bytes copied
  double triad_bps = 0;                      // bytes read and written by a = b + s c
  double copy_spread = 0, triad_spread = 0;  // median absolute deviation over the median
};

// On the compute threads (kernels/cpu/parallel.hpp), over arrays of `bytes` each, which should be
// several times the last cache. Throws BudgetError if memory is missing.
[[nodiscard]] MemoryRates measure_memory(std::int64_t bytes, int rounds);

struct ArenaCopyRates {
  double h2d_bps = 0, d2h_bps = 0;  // each alone, one thread
  double both_bps = 0;              // two threads, one each way: the sum
  double h2d_spread = 0, d2h_spread = 0, both_spread = 0;
};

// Between two arenas in RAM, as the lanes of a run without a GPU copy. `bytes` of each.
[[nodiscard]] ArenaCopyRates measure_arena_copies(std::int64_t bytes, int rounds);

}  // namespace sluice
