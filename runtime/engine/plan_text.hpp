// A step's plan in words, for the log, the dry run and the budget's complaint. Pure.
#pragma once

#include <string>

#include "runtime/engine/step_profile.hpp"
#include "runtime/program/memory_model.hpp"

namespace sluice {

// "moments 120 MiB, parameters 60 MiB, ...": tags at the peak, largest first.
[[nodiscard]] std::string describe_tags(const MemoryReport& memory);

// A table of tags and a line a lane, 80 columns.
[[nodiscard]] std::string describe_plan(const StepPlan& plan, const Program& program,
                                        const MemoryReport& memory);

// One JSON object: tiers, by_tag, operations, wire bytes.
[[nodiscard]] std::string plan_json(const StepPlan& plan, const Program& program,
                                    const MemoryReport& memory, std::int64_t device_budget);

// Throws BudgetError where the peak is above the budget (0: none), with the largest tags and what
// to change.
void check_budget(const StepPlan& plan, const MemoryReport& memory, std::int64_t device_budget);

}  // namespace sluice
