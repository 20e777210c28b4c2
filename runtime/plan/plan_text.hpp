// What a plan says to its reader: the dry run's text, plan.json, and the complaint of a plan that
// does not fit. Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

// Bytes of one rank; 0: no limit.
struct TierBudgets {
  std::int64_t device = 0;
  std::int64_t host = 0;  // its shares of the host's budgets
  std::int64_t nvme = 0;
  int ranks_of_host = 1;
};

// What a rank holds on one tier, where that is highest.
struct TierPlan {
  std::vector<std::pair<std::string, std::int64_t>> by_tag;  // bytes, largest first
  std::int64_t peak = 0;                                     // with slots that are not in use
  std::int64_t budget = 0;
  [[nodiscard]] bool fits() const { return budget == 0 || peak <= budget; }
};

struct MemoryPlan {
  std::array<TierPlan, kTierCount> tiers;
  TierBudgets budgets;
  [[nodiscard]] const TierPlan& of(Tier tier) const { return nth(tiers, tier); }
  [[nodiscard]] bool fits() const;
};

// Throws BudgetError where the plan's device peak is above `available` bytes of GPU `gpu`.
void check_card(const StepPlan& plan, const MemoryPlan& memory, std::int64_t available, int gpu);
// Of a step in which the device's allocator ran out of memory: what it says, the largest holders of
// the plan, and what to change.
[[nodiscard]] BudgetError out_of_device_memory(const StepPlan& plan, const MemoryPlan& memory,
                                               const std::string& what);

// What a rank holds while it runs `program`, by tier. The host's figure counts whole pages, as the
// run's HostPool does, and the step program itself where anything is off the device.
[[nodiscard]] MemoryPlan plan_memory(const Program& program, const TierBudgets& budgets);

// "activations 12.0 MiB, master 4.0 MiB, ...": what a tier is full of at its highest, largest
// first.
[[nodiscard]] std::string describe_tags(const TierPlan& tier);

// The dry run: memory by tag, a column for each tier that is used or limited, operations, bytes on
// the wire and to and from NVMe.
[[nodiscard]] std::string describe_plan(const StepPlan& plan, const Program& program,
                                        const MemoryPlan& memory);
// `time`: of this program; null where the machine's rates are not known.
[[nodiscard]] std::string plan_json(const StepPlan& plan, const Program& program,
                                    const MemoryPlan& memory, const TimeReport* time = nullptr);

// Throws BudgetError where a rank needs more than a budget, for all such tiers: with the largest
// tags and what would make it fit.
void check_budget(const StepPlan& plan, const MemoryPlan& memory);

// The same of a run, where the plan was not all: throws BudgetError if `measured`, the peak of what
// a rank has taken on its device, is more than the budget.
void check_device_peak(const StepPlan& plan, const MemoryPlan& memory, std::int64_t measured);

}  // namespace sluice
