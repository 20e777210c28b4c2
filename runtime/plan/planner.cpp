#include "runtime/plan/planner.hpp"

#include <algorithm>
#include <limits>

#include "runtime/plan/unit_seconds.hpp"
#include "runtime/program/step_writer.hpp"

namespace sluice {
namespace {

bool gradients_add(const EngineOptions& options) {
  return options.zero.reduce_every == ReduceEvery::kStep && micro_batches_of(options) > 1;
}

RankQuestion rank_question(const EngineOptions& options) {
  const bool fp32 =
      options.train.dtype == DType::kFloat32 || options.model.matmul == MatmulType::kFp32;
  return {.ranks = options.dp,
          .dtype = options.train.dtype,
          .multiplied_in = fp32 ? DType::kFloat32 : options.train.dtype};
}

// What passes through the host on its way between a GPU and elsewhere: the ring and the slots.
std::int64_t pinned_bytes(const Program& program) {
  std::int64_t bytes = program.host_arena_bytes;
  for (const Persistent& p : program.persistent) {
    if (p.tier == Tier::kHost && p.tag == Tag::kStateStaging) bytes += p.bytes;
  }
  return bytes;
}

}  // namespace

Rates Planner::rates(const EngineOptions& options) const {
  Rates rates = rates_of(machine_, rank_question(options));
  rates.units = unit_seconds(machine_, options);
  return rates;
}

StepPlan Planner::shape_of(const EngineOptions& options) {
  const bool selective = options.model.recompute_attention;
  std::shared_ptr<Model>& model = models_[selective];
  if (!model) {
    model = std::make_shared<Model>(make_model(options.model));
    unit_names_.clear();
    for (const UnitSpec& unit : model->spec.units) unit_names_.push_back(unit.name);
  }
  const Key key{options.train.micro_batch, selective, static_cast<int>(options.train.dtype),
                gradients_add(options), options.dp};
  auto found = profiled_.find(key);
  if (found == profiled_.end()) {
    found = profiled_.emplace(key, plan_step(options, *model)).first;
  }
  StepPlan plan = found->second;
  apply_layout(plan, options);
  plan.model_flops_per_step *= static_cast<double>(plan.shape.micro_batches) /
                               static_cast<double>(found->second.shape.micro_batches);
  return plan;
}

std::array<std::int64_t, static_cast<std::size_t>(kTierCount)> Planner::budgets_of(
    const PlanQuestion& question) const {
  std::int64_t device = question.budgets.device;
  if (device == 0 && machine_.gpu && machine_.device_memory_bytes > 0) {
    device = machine_.device_memory_bytes - machine_.device_overhead_bytes;
  }
  return {device, question.budgets.host, question.budgets.nvme};
}

RunPlan Planner::plan(const PlanQuestion& question) {
  const EngineOptions& options = question.options;
  const StepPlan step = shape_of(options);
  const Rates rank_rates = rates(options);
  RunPlan plan;
  plan.shape = step.shape;
  plan.program = write_train_step(step.shape);
  TierBudgets budgets = question.budgets;
  budgets.device = budgets_of(question).front();
  plan.memory = plan_memory(plan.program, options.tiers.nvme, budgets);
  for (int t = 0; t < kTierCount; ++t) {
    plan.phases[static_cast<std::size_t>(t)] = memory_by_phase(plan.program, static_cast<Tier>(t));
  }
  if (machine_.gpu) plan.pinned = pinned_bytes(plan.program);
  plan.time = predict_time(plan.program, step.shape, rank_rates);
  plan.traffic = traffic_of(plan.program);
  plan.ranks = options.dp;
  plan.nodes = nodes_of(machine_, options.dp);
  for (const GroupPlan& group : step.groups) plan.params += group.param_elems;
  const std::int64_t samples = options.train.micro_batch * options.dp * step.shape.micro_batches;
  plan.tokens_per_step = samples * options.model.seq;
  plan.model_flops_per_step = step.model_flops_per_step;
  plan.peak_flops = peak_flops_of(machine_, rank_question(options));
  return plan;
}

LaneSeconds hiding_tokens(const StepShape& shape, const Rates& rates,
                          std::int64_t tokens_of_micro_batch) {
  const auto busy_with = [&](int micro_batches) {
    StepShape other = shape;
    other.micro_batches = micro_batches;
    const Program program = write_train_step(other);
    return schedule(program, op_seconds(program, other, rates), rates.disk_duplex).busy;
  };
  // From two on a micro-batch more adds the same each time.
  const LaneSeconds two = busy_with(2);
  const LaneSeconds three = busy_with(3);
  const auto compute = static_cast<std::size_t>(Lane::kCompute);
  const double compute_each = three[compute] - two[compute];
  const double compute_once = two[compute] - 2 * compute_each;
  LaneSeconds tokens{};
  for (std::size_t lane = 0; lane < tokens.size(); ++lane) {
    if (lane == compute || two[lane] <= 0) continue;
    const double each = three[lane] - two[lane];
    const double once = two[lane] - 2 * each;
    if (once <= compute_once && each <= compute_each) continue;
    const double micro_batches = each < compute_each ? (once - compute_once) / (compute_each - each)
                                                     : std::numeric_limits<double>::infinity();
    tokens[lane] = std::max(1.0, micro_batches) * static_cast<double>(tokens_of_micro_batch);
  }
  return tokens;
}

}  // namespace sluice
