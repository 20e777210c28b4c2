// The files of a run besides its steps: events, the plan's figures, the trace of a step. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

// One line of events.jsonl.
struct EventLine {
  std::string kind;
  std::string text;
  std::int64_t step = -1;  // -1: none
  double unix_seconds = 0;
};
// nullopt where the text is no object with an event.
[[nodiscard]] std::optional<EventLine> parse_event_line(std::string_view text);

struct PlannedTier {
  std::string name;
  double peak = 0, budget = 0;
  std::vector<std::pair<std::string, double>> by_tag = {};
};
struct PlanFigures {
  std::vector<PlannedTier> tiers = {};
  double step_ms = 0;  // 0: unknown
};
// nullopt where the text is no plan.json.
[[nodiscard]] std::optional<PlanFigures> parse_plan(std::string_view text);

// trace.json as the lanes that timeline.js draws: a JSON object. Short neighbours in a lane are one
// bar, so the page stays small. Empty where the text is no trace, or has no slices.
[[nodiscard]] std::string timeline_json(std::string_view trace);

}  // namespace sluice
