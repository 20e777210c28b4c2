// Runs as the data of a report's page, and as text. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/report/run_reader.hpp"

namespace sluice {

// An event with its place on each axis.
struct Mark {
  std::string kind;
  std::string text;
  std::int64_t step = 0;
  double unix_seconds = 0;  // 0: unknown
};
// The run's events in the order of their steps. An event without a step has that of the event
// before. Skipped steps and saves that events.jsonl lacks come from the metrics. A kind that
// happened more than kMostMarks times keeps its first and last ones; `left_out` gets the number of
// the others.
inline constexpr std::size_t kMostMarks = 400;
[[nodiscard]] std::vector<Mark> marks_of(const RunData& run, std::int64_t& left_out);

// One JSON object: `runs` with their curves (downsampled), marks, plans and timelines, and
// `config`.
[[nodiscard]] std::string runs_json(const std::vector<const RunData*>& runs);
// A line for each run, for the terminal and for browsers without scripts.
[[nodiscard]] std::string runs_text(const std::vector<const RunData*>& runs);
// The whole page. `follows`: it asks its server for new data.
[[nodiscard]] std::string runs_page(const std::vector<const RunData*>& runs, bool follows);

}  // namespace sluice
