// Makes the plans of a model's configurations. Profiling the units is the slow part: each is
// profiled once for each thing that its memory depends on. Not thread-safe (unit_profile.hpp).
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "runtime/engine/step_profile.hpp"
#include "runtime/plan/machine_profile.hpp"
#include "runtime/plan/planned_run.hpp"

namespace sluice {

struct PlanQuestion {
  EngineOptions options;
  TierBudgets budgets;  // device 0: that of a GPU that is known
};

class Planner {
 public:
  explicit Planner(MachineProfile machine) : machine_(std::move(machine)) {}

  [[nodiscard]] RunPlan plan(const PlanQuestion& question);
  // Cheap: no program is written. The plan's shape, of which bounds can be had.
  [[nodiscard]] StepPlan shape_of(const EngineOptions& options);

  [[nodiscard]] const MachineProfile& machine() const { return machine_; }
  [[nodiscard]] Rates rates(const EngineOptions& options) const;
  // By tier; with the device's own memory where that is known and no budget was given.
  [[nodiscard]] std::array<std::int64_t, static_cast<std::size_t>(kTierCount)> budgets_of(
      const PlanQuestion& question) const;
  [[nodiscard]] const std::vector<std::string>& unit_names() const { return unit_names_; }

 private:
  using Key = std::tuple<std::int64_t, bool, int, bool, int>;

  MachineProfile machine_;
  std::map<Key, StepPlan> profiled_;
  std::map<bool, std::shared_ptr<Model>> models_;  // by recompute_attention
  std::vector<std::string> unit_names_;
};

// Tokens of a step, of all ranks, from which a lane's work hides behind compute, by accumulating
// more micro-batches: what a step costs the lane once is spread over more of them. 0: hidden
// already, or idle; infinity: its work grows with the micro-batches as fast as compute's.
[[nodiscard]] LaneSeconds hiding_tokens(const StepShape& shape, const Rates& rates,
                                        std::int64_t tokens_of_micro_batch);

}  // namespace sluice
