// Plans of many candidates, fast: with few micro-batches, extrapolated.
#pragma once

#include <exception>
#include <span>
#include <unordered_map>

#include "runtime/plan/planner.hpp"

namespace sluice {

// Plans with two small numbers of micro-batches and extrapolates: from two and three, or in a
// pipeline from two and three times its stages. Each further micro-batch adds the same.
// A step takes at least as long as the extrapolated work of each lane.
class Evaluator {
 public:
  // `planner` outlives this.
  Evaluator(Planner& planner, const TierBudgets& budgets) : planner_(planner), budgets_(budgets) {}

  // Plans candidates side by side, on the compute threads, for one call of evaluate() with each of
  // the same objects, which must live until then. No plan depends on the number of threads.
  void look_ahead(std::span<const EngineOptions* const> candidates);
  [[nodiscard]] bool has_ahead(const EngineOptions& options) const {
    return ahead_.contains(&options);
  }
  // The programs of these plans are not kept.
  [[nodiscard]] RunPlan evaluate(const EngineOptions& options);
  // Plans all micro-batches. Falls back to evaluate() if the program is too long
  // (refuse_long_program).
  [[nodiscard]] RunPlan plan_in_full(const EngineOptions& options);

 private:
  // The plan, or the error of making it.
  struct Outcome {
    RunPlan plan{};
    std::exception_ptr error{};
  };

  Planner& planner_;
  TierBudgets budgets_;
  std::unordered_map<const EngineOptions*, Outcome> ahead_;
};

}  // namespace sluice
