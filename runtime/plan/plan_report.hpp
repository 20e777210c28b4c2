// A run's plan as text of at most 80 columns, and as JSON. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/planned_run.hpp"
#include "runtime/plan/search/fit_table.hpp"
#include "runtime/plan/search/search.hpp"

namespace sluice {

// Memory by tier, tag and phase; lanes; the cost of a step; the timeline.
[[nodiscard]] std::string report_text(const RunPlan& plan, const RunFacts& facts);
// "fits", "does not fit: 3.1 GiB too much", "does not fit this machine"
[[nodiscard]] std::string verdict_text(const RunPlan& plan, const RunFacts& facts);

// The contract's object (docs/plan.md). `result` and `rows` may be null.
[[nodiscard]] std::string report_json(const RunPlan& plan, const RunFacts& facts,
                                      const SearchResult* result, const std::vector<FitRow>* rows);

// Label of host memory beside the program's tags (plan_memory); at most 26 columns.
inline constexpr char kBesideProgram[] = "step program, buffers";

}  // namespace sluice
