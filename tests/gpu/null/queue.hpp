// Streams whose work is really done: the null GPU that computes (NULL_GPU_COMPUTES). Thread-safe.
//
// A stream holds tasks in order. The schedule says when they run: `early` at once, `late` when the
// host waits for them, a number in an order of its own that the number chooses. Every schedule
// respects streams, events and waits, and nothing else; so a step that lacks one of them gets other
// numbers with some schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace null_gpu {

// Does the work and returns true. False: it waits for another rank and is tried again. Runs on any
// thread, one task of the process at a time, and must not call the CUDA runtime. A task of a graph
// runs once for each launch.
using Task = std::function<bool()>;

// Whether NULL_GPU_COMPUTES is set. Without it streams hold nothing, no task may be enqueued, and
// the functions below do nothing.
[[nodiscard]] bool computes();

// Appends the task to the stream, or to the graph that the stream records.
void enqueue(const void* stream, Task task);

// Also for a process that makes no calls: from now on a thread runs work while the host is idle.
// Call it where other ranks wait for tasks of this process.
void serve_other_ranks();

// The rest is for the null CUDA runtime.

// Not a cudaStreamNonBlocking one: its work and that of the default stream wait for each other.
void note_blocking_stream(const void* stream);

void enqueue_record(const void* event, const void* stream);
// For the record that is the event's last now. Nothing if its work is done, or if
// NULL_GPU_SKIP_WAIT is the number of this wait among those for work that is not done, from 0 on.
void enqueue_wait(const void* stream, const void* event);
void forget_event(const void* event);

// Queries. A host that polls makes the work go on.
[[nodiscard]] bool is_done_stream(const void* stream);
[[nodiscard]] bool is_done_event(const void* event);
// Waits of the host.
void finish_stream(const void* stream);
void finish_event(const void* event);
void finish_device();

// Most tasks that a stream held at a time.
[[nodiscard]] std::int64_t most_tasks();

// For tests, where no work is enqueued: another value of NULL_GPU_COMPUTES.
void set_schedule(const std::string& text);

}  // namespace null_gpu
