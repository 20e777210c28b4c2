#include "runtime/plan/search/evaluator.hpp"

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"

namespace sluice {
namespace {

void draw_out(const MemoryPlan& before, double rest, MemoryPlan& memory) {
  for (std::size_t t = 0; t < memory.tiers.size(); ++t) {
    const std::int64_t each = memory.tiers[t].peak - before.tiers[t].peak;
    if (each > 0) {
      memory.tiers[t].peak += static_cast<std::int64_t>(rest * static_cast<double>(each));
    } else {
      memory.tiers[t].peak = before.tiers[t].peak;
    }
  }
}

// Each micro-batch adds to a lane's work. The step may not grow at first, while another lane works
// longer.
void draw_out(const TimeReport& before, double rest, bool shared_cores, TimeReport& time) {
  time.step_s += rest * (time.step_s - before.step_s);
  double on_cores = 0;  // of lanes that share a CPU's cores
  for (std::size_t lane = 0; lane < time.busy.size(); ++lane) {
    time.busy[lane] += rest * (time.busy[lane] - before.busy[lane]);
    time.step_s = std::max(time.step_s, time.busy[lane]);
    const bool off_cores =
        static_cast<Lane>(lane) == Lane::kDisk || static_cast<Lane>(lane) == Lane::kPipe;
    if (!off_cores) on_cores += time.busy[lane];
  }
  if (shared_cores) time.step_s = std::max(time.step_s, on_cores);
}

EngineOptions with_micro_batches(EngineOptions options, std::int64_t count) {
  options.train.global_batch = options.train.micro_batch * options.dp * count;
  return options;
}

}  // namespace

RunPlan Evaluator::evaluate(const EngineOptions& options) {
  const std::int64_t micro_batches = micro_batches_of(options);
  const int stages = options.parallel.pipeline;
  const std::int64_t few = 2 * stages;
  const std::int64_t more = stages > 1 ? 3 * stages : 3;
  if (micro_batches <= more) return plan(options);
  const RunPlan before = plan(with_micro_batches(options, few));
  RunPlan drawn = plan(with_micro_batches(options, more));
  const auto rest = static_cast<double>(micro_batches - more) / static_cast<double>(more - few);
  // In micro order further micro-batches need no memory; arena slots may get other offsets.
  const bool grows = options.train.accumulation_order == AccumulationOrder::kLayer ||
                     (stages > 1 && options.parallel.schedule == PipelineSchedule::kGpipe);
  double step_s = 0;
  for (std::size_t s = 0; s < drawn.stages.size(); ++s) {
    StagePlan& stage = drawn.stages[s];
    draw_out(before.stages[s].memory, grows ? rest : 0, stage.memory);
    draw_out(before.stages[s].time, rest, planner_.rates(options).shared_cores, stage.time);
    step_s = std::max(step_s, stage.time.step_s);
  }
  const StagePlan& largest = drawn.stages[largest_stage(drawn.stages, 0, drawn.stages.size())];
  drawn.memory = largest.memory;
  drawn.time = largest.time;
  drawn.time.step_s = step_s;
  return drawn;
}

RunPlan Evaluator::plan(const EngineOptions& options) {
  RunPlan plan = planner_.plan({options, budgets_});
  plan.program = {};
  for (StagePlan& stage : plan.stages) stage.program = {};
  return plan;
}

RunPlan Evaluator::plan_in_full(const EngineOptions& options) {
  try {
    return plan(options);
  } catch (const ConfigError&) {
    return evaluate(options);
  }
}

}  // namespace sluice
