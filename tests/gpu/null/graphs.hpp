// Graphs of the null GPU: what a capturing stream records instead of doing it. Thread-safe.
#pragma once

#include <driver_types.h>

#include <functional>
#include <string>

namespace null_gpu {

// The stream records its work. The null stream never does.
[[nodiscard]] bool is_capturing(const void* stream);
// Any stream does.
[[nodiscard]] bool any_capturing();

// If the stream records, adds the work and returns true. `redo` runs at each launch of the graph,
// with the stream into which it is launched.
bool recorded(const void* stream, std::function<void(const void* launching)> redo);
bool recorded_kernel(const void* stream, const std::string& kernel);

// Notes where an event was recorded last, and whether that was in a graph: such an event cannot be
// queried or waited for by the host.
void note_event(const void* event, const void* stream);
[[nodiscard]] bool belongs_to_graph(const void* event);

}  // namespace null_gpu
