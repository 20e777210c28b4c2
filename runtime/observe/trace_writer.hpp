// trace.json in the Trace Event format, for chrome://tracing and Perfetto: a process per rank, a
// track per lane (compute, comm, h2d, ...), a slice per event.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sluice {

using TraceValue = std::variant<std::int64_t, double, std::string>;

struct TraceEvent {
  std::string name;
  std::string lane;
  int rank = 0;
  double start_us = 0;  // from the same zero for all events of a trace
  double duration_us = 0;
  std::vector<std::pair<std::string, TraceValue>> args;  // shown when the slice is selected
};

struct TraceLayout {
  // Lanes from top to bottom. Other lanes follow in the order of their first event.
  std::vector<std::string> lanes;
  std::string process_prefix = "rank ";  // the process is called "rank 3",
  // or has this name. Processes stand in the order of their numbers.
  std::map<int, std::string> process_names = {};
};

// The file's text. Pure.
[[nodiscard]] std::string format_trace(std::span<const TraceEvent> events,
                                       const TraceLayout& layout = {});

// Writes it atomically: a viewer never loads half a trace. Throws IoError.
void write_trace(const std::string& path, std::span<const TraceEvent> events,
                 const TraceLayout& layout = {});

}  // namespace sluice
