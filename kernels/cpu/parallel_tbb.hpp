// The thread pool behind parallel.cpp. parallel_tbb.cpp also defines set_compute_threads() and
// compute_threads().
#pragma once

#include <cstdint>

#include "kernels/cpu/parallel.hpp"

namespace sluice {

// Calls function(context, begin, end) over [0, pieces) on the compute threads. REQUIRES: pieces >=
// 1.
void run_pieces(std::int64_t pieces, void* context, RangeFunction function);

// Sets the function that each pool thread calls with its index when it starts to work; nullptr:
// none. When set_entry_function() returns, no call of the previous function is running.
using EntryFunction = void (*)(int index);
void set_entry_function(EntryFunction entered);

}  // namespace sluice
