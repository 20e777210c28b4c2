// Plans of many candidates, fast: with few micro-batches, extrapolated.
#pragma once

#include "runtime/plan/planner.hpp"

namespace sluice {

// Plans with two small numbers of micro-batches and extrapolates: from two and three, or in a
// pipeline from two and three times its stages. Each further micro-batch adds the same.
// A step takes at least as long as the extrapolated work of each lane.
class Evaluator {
 public:
  // `planner` outlives this.
  Evaluator(Planner& planner, const TierBudgets& budgets) : planner_(planner), budgets_(budgets) {}

  // The programs of these plans are not kept.
  [[nodiscard]] RunPlan evaluate(const EngineOptions& options);
  // Plans all micro-batches. Falls back to evaluate() if the program is too long
  // (refuse_long_program).
  [[nodiscard]] RunPlan plan_in_full(const EngineOptions& options);

 private:
  [[nodiscard]] RunPlan plan(const EngineOptions& options);

  Planner& planner_;
  TierBudgets budgets_;
};

}  // namespace sluice
