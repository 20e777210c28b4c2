// Streams whose work is really done: the null GPU that computes (NULL_GPU_COMPUTES). Thread-safe.
//
// A stream holds tasks in order. The schedule says when they run: `early` at once, `late` when the
// host waits for them, a number in an order of its own that the number chooses. Every schedule
// respects streams, events and waits, and nothing else; so a step that lacks one of them gets other
// numbers with some schedule.
#pragma once

#include <functional>

namespace null_gpu {

// Does the work and returns true. False: it waits for another rank and is tried again. Runs on any
// thread, and must not call the CUDA runtime. A task of a graph runs once for each launch.
using Task = std::function<bool()>;

// Whether NULL_GPU_COMPUTES is set. Without it streams hold nothing, and no task may be enqueued.
[[nodiscard]] bool computes();

// Appends the task to the stream, or to the graph that the stream records.
void enqueue(const void* stream, Task task);

}  // namespace null_gpu
