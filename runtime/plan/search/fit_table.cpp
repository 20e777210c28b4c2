#include "runtime/plan/search/fit_table.hpp"

#include "base/error.hpp"
#include "runtime/plan/search/evaluator.hpp"
#include "runtime/plan/search/settings.hpp"

namespace sluice {
namespace {

void fill_in(Evaluator& evaluator, const EngineOptions& options, FitCell& cell) {
  try {
    const RunPlan plan = evaluator.evaluate(options);
    cell.fits = plan.fits();
    cell.device = plan.need(Tier::kDevice);
    cell.host = plan.peak(Tier::kHost);
    cell.nvme = plan.peak(Tier::kNvme);
    cell.step_s = plan.time.step_s;
  } catch (const ConfigError& error) {
    cell.refused = error.what();
  }
}

}  // namespace

std::vector<FitRow> compare(Planner& planner, const PlanQuestion& question) {
  Evaluator evaluator(planner, question.budgets);
  std::vector<FitRow> rows;
  for (const Rung& rung : placement_ladder()) {
    FitRow row{rung.name, {}};
    for (int stage = 0; stage <= 3; ++stage) {
      FitCell cell;
      EngineOptions options = question.options;
      options.zero.stage = stage;
      place(options, rung);
      cell.possible = has_meaning(rung, stage) && keeps_what_it_sums(options);
      if (cell.possible) fill_in(evaluator, options, cell);
      row.stages.push_back(cell);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sluice
