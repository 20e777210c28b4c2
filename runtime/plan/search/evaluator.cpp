#include "runtime/plan/search/evaluator.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

// Without unused slots.
std::int64_t held_bytes(const TierPlan& tier) {
  std::int64_t sum = 0;
  for (const auto& [tag, bytes] : tier.by_tag) sum += bytes;
  return sum;
}

// `grows`: each micro-batch needs more of the arena. Otherwise its slots may only get other
// offsets, and on the device each micro-batch adds its batch alone. On the host it adds its
// operations to the program, which are left out: shares of states leave no room for them.
void draw_out(const MemoryPlan& before, double rest, bool grows, MemoryPlan& memory) {
  for (std::size_t t = 0; t < memory.tiers.size(); ++t) {
    TierPlan& tier = memory.tiers[t];
    const TierPlan& fewer = before.tiers[t];
    std::int64_t each = 0;
    if (grows) {
      each = tier.peak - fewer.peak;
    } else if (static_cast<Tier>(t) == Tier::kDevice) {
      each = held_bytes(tier) - held_bytes(fewer);
    }
    tier.peak = std::max(tier.peak, fewer.peak);
    if (each > 0) tier.peak += static_cast<std::int64_t>(rest * static_cast<double>(each));
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

RunPlan without_programs(RunPlan plan) {
  plan.program = {};
  for (StagePlan& stage : plan.stages) stage.program = {};
  return plan;
}

// One candidate: the plans to make, and what to extrapolate from them.
struct Question {
  std::vector<OpenPlan> open;  // of few micro-batches and of more; or of all
  double rest = 0;             // more micro-batches, in steps from few to more
  bool grows = false;          // in memory, with each micro-batch
  bool shared_cores = false;
};

Question question_of(Planner& planner, const EngineOptions& options, const TierBudgets& budgets) {
  const std::int64_t micro_batches = micro_batches_of(options);
  const int stages = options.parallel.pipeline;
  const std::int64_t few = 2 * stages;
  const std::int64_t more = stages > 1 ? 3 * stages : 3;
  Question question;
  if (micro_batches <= more) {
    question.open.push_back(planner.open({options, budgets}));
    return question;
  }
  for (const std::int64_t count : {few, more}) {
    question.open.push_back(planner.open({with_micro_batches(options, count), budgets}));
  }
  question.rest = static_cast<double>(micro_batches - more) / static_cast<double>(more - few);
  question.grows = options.train.accumulation_order == AccumulationOrder::kLayer ||
                   (stages > 1 && options.parallel.schedule == PipelineSchedule::kGpipe);
  question.shared_cores = planner.rates(options).shared_cores;
  return question;
}

RunPlan answer(Question question) {
  RunPlan drawn = without_programs(complete(std::move(question.open.back())));
  if (question.open.size() == 1) return drawn;
  const RunPlan before = without_programs(complete(std::move(question.open.front())));
  double step_s = 0;
  for (std::size_t s = 0; s < drawn.stages.size(); ++s) {
    StagePlan& stage = drawn.stages[s];
    draw_out(before.stages[s].memory, question.rest, question.grows, stage.memory);
    draw_out(before.stages[s].time, question.rest, question.shared_cores, stage.time);
    step_s = std::max(step_s, stage.time.step_s);
  }
  const StagePlan& largest = drawn.stages[largest_stage(drawn.stages, 0, drawn.stages.size())];
  drawn.memory = largest.memory;
  drawn.time = largest.time;
  drawn.time.step_s = step_s;
  return drawn;
}

// Returns the error of make(), or null.
template <class F>
std::exception_ptr error_of(const F& make) {
  try {
    make();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

void Evaluator::look_ahead(std::span<const EngineOptions* const> candidates) {
  std::vector<Question> questions(candidates.size());
  std::vector<Outcome> outcomes(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    outcomes[i].error =
        error_of([&] { questions[i] = question_of(planner_, *candidates[i], budgets_); });
  }
  parallel_for(std::ssize(candidates), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Outcome& outcome = nth(outcomes, i);
      if (outcome.error) continue;
      outcome.error = error_of([&] { outcome.plan = answer(std::move(nth(questions, i))); });
    }
  });
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    ahead_.emplace(candidates[i], std::move(outcomes[i]));
  }
}

RunPlan Evaluator::evaluate(const EngineOptions& options) {
  const EngineOptions* const one = &options;
  if (!has_ahead(options)) look_ahead({&one, 1});
  Outcome outcome = std::move(ahead_.extract(one).mapped());
  if (outcome.error) std::rethrow_exception(outcome.error);
  return std::move(outcome.plan);
}

RunPlan Evaluator::plan_in_full(const EngineOptions& options) {
  try {
    return without_programs(planner_.plan({options, budgets_}));
  } catch (const ConfigError&) {
    return evaluate(options);
  }
}

}  // namespace sluice
