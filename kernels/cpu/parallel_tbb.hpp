// What parallel.cpp needs of the thread pool; set_compute_threads and compute_threads live there
// too.
#pragma once

#include <cstdint>

#include "kernels/cpu/parallel.hpp"

namespace sluice {

// function(context, begin, end) over [0, pieces) on the compute threads. REQUIRES: pieces >= 1.
void run_pieces(std::int64_t pieces, void* context, RangeFunction function);

// Called by each thread of the pool's own as it comes to work, with its index; nullptr: nothing is.
// No call of the former one is under way any more when this returns. As on_compute_thread.
using EntryFunction = void (*)(int index);
void set_entry_function(EntryFunction entered);

}  // namespace sluice
