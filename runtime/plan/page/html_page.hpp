// A run's plan as one self-contained HTML page: the memory of each tier and the lanes on one time
// axis, and the tables. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan_report.hpp"

namespace sluice {

// The page of plan_body.html and plan_page.js. The data is one JSON object in a
// script element, the plan of report_json() in it; it is the only thing that differs between pages,
// title and text report aside. `result` and `rows` may be null. REQUIRES: the plan has its program.
[[nodiscard]] std::string plan_html(const RunPlan& plan, const RunFacts& facts,
                                    const SearchResult* result, const std::vector<FitRow>* rows);

}  // namespace sluice
