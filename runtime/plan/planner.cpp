#include "runtime/plan/planner.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/index.hpp"
#include "kernels/cpu/parallel.hpp"
#include "runtime/engine/multiplied_in.hpp"
#include "runtime/engine/rank_part.hpp"
#include "runtime/plan/nccl_memory.hpp"
#include "runtime/plan/passing_gradients.hpp"
#include "runtime/plan/programs/planned_program.hpp"
#include "runtime/plan/search/bounds.hpp"
#include "runtime/plan/unit_seconds.hpp"
#include "runtime/program/model/pipeline_time.hpp"
#include "runtime/program/write/step_writer.hpp"

namespace sluice {
namespace {

RankQuestion rank_question(const EngineOptions& options) {
  return {.ranks = world_of(options),
          .dtype = options.train.dtype,
          .multiplied_in = multiplied_in(options)};
}

// Host memory that a GPU's copies touch: it is registered with the GPU.
std::int64_t pinned_bytes(const Program& program) {
  std::int64_t bytes = program.host_arena_bytes;
  for (const StateBlock& block : program.states.blocks) bytes += block.copied ? block.bytes : 0;
  return bytes;
}

// The stage's program, its memory and its traffic.
void write_program(const OpenPlan& open, StagePlan& plan) {
  plan.program = planned_program(plan.shape);
  plan.memory = plan_memory(
      plan.program, open.budgets,
      open.gpu ? nccl_buffer_bytes(plan.shape, open.budgets.ranks_of_host) : std::int64_t{0});
  for (int t = 0; t < kTierCount; ++t) {
    nth(plan.phases, t) = memory_by_phase(plan.program, static_cast<Tier>(t));
  }
  if (open.gpu) plan.pinned = pinned_bytes(plan.program);
  plan.traffic = traffic_of(plan.program);
  plan.activation_bytes = nth(add_up(plan.program).by_tag, Tag::kActivations);
}

void set_times(std::vector<StagePlan>& stages, const std::vector<Rates>& rates) {
  std::vector<Program> programs;
  std::vector<StepShape> shapes;
  for (StagePlan& stage : stages) {
    programs.push_back(std::move(stage.program));
    shapes.push_back(std::move(stage.shape));
  }
  check_stages(programs, shapes);
  PipelineTime time = predict_pipeline_time(programs, shapes, rates);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    stages[s].program = std::move(programs[s]);
    stages[s].shape = std::move(shapes[s]);
    stages[s].time = std::move(time.stages[s]);
    stages[s].time.step_s = time.step_s;
    stages[s].bubble = time.bubble[s];
  }
}

void add(Traffic& sum, const Traffic& one) {
  sum.wire += one.wire;
  sum.tensor += one.tensor;
  sum.replicas += one.replicas;
  sum.ends += one.ends;
  sum.world += one.world;
  sum.pipe += one.pipe;
  sum.to_host += one.to_host;
  sum.to_device += one.to_device;
  sum.disk_read += one.disk_read;
  sum.disk_written += one.disk_written;
}

// The host whose devices hold most. Ranks fill hosts in turn.
NodePlan largest_node(const std::vector<StagePlan>& stages, int ranks, int ranks_of_host) {
  const int of_stage = ranks / static_cast<int>(stages.size());
  NodePlan largest;
  for (int first = 0; first < ranks; first += ranks_of_host) {
    NodePlan node;
    node.ranks = std::min(ranks_of_host, ranks - first);
    for (int rank = first; rank < first + node.ranks; ++rank) {
      const StagePlan& stage = nth(stages, rank / of_stage);
      for (std::size_t t = 0; t < node.peak.size(); ++t) {
        node.peak[t] += stage.memory.tiers[t].peak;
      }
      node.pinned += stage.pinned;
      add(node.traffic, stage.traffic);
    }
    if (first == 0 || node.peak[0] > largest.peak[0]) largest = node;
  }
  return largest;
}

// Extrapolates `profile` from two samples to `samples`. `one`: the profile of one sample.
void draw_out(const UnitProfile& one, std::int64_t samples, UnitProfile& profile) {
  const auto draw = [samples](std::int64_t first, std::int64_t& bytes) {
    bytes = first + (samples - 1) * (bytes - first);
  };
  for (std::int64_t UnitMemory::*bytes :
       {&UnitMemory::output, &UnitMemory::kept, &UnitMemory::forward_peak,
        &UnitMemory::forward_only_peak, &UnitMemory::backward_peak, &UnitMemory::recompute_peak,
        &UnitMemory::input_gradient, &UnitMemory::scratch, &UnitMemory::deferred,
        &UnitMemory::weights_peak}) {
    draw(one.memory.*bytes, profile.memory.*bytes);
  }
  // One exchange has all bytes: a bound on time counts no latencies.
  const auto draw_list = [&](const ExchangeList& first, ExchangeList& list) {
    std::int64_t bytes = sent_bytes(list);
    draw(sent_bytes(first), bytes);
    list.clear();
    if (bytes > 0) list.push_back({.bytes = bytes});
  };
  draw_list(one.exchanges.forward, profile.exchanges.forward);
  draw_list(one.exchanges.backward, profile.exchanges.backward);
  draw_list(one.exchanges.again, profile.exchanges.again);
}

std::pair<UnitKind, std::vector<bool>> kind_of(const ModelSpec& spec, std::size_t unit) {
  return {spec.units[unit].kind, frozen_params(spec, unit)};
}

template <class Kinds>
StepPlan assemble(const EngineOptions& options, const ModelSpec& spec, const Kinds& kinds) {
  std::vector<UnitProfile> by_unit;
  for (std::size_t u = 0; u < spec.units.size(); ++u) by_unit.push_back(kinds.at(kind_of(spec, u)));
  return plan_step(options, spec, by_unit);
}

}  // namespace

int world_of(const EngineOptions& options) {
  return options.dp * options.parallel.tensor * options.parallel.pipeline;
}

const MeshWires& Planner::wires(const EngineOptions& options) {
  const ParallelOptions& mesh = options.parallel;
  const bool around = mesh.virtual_stages > 1;
  const auto [at, added] =
      wires_.try_emplace({mesh.tensor, mesh.pipeline, world_of(options), around});
  if (added) at->second = wires_of(machine_, mesh, world_of(options));
  return at->second;
}

Rates Planner::rates(const EngineOptions& options) {
  Rates rates = rates_of(machine_, rank_question(options));
  const MeshWires& mesh = wires(options);
  rates.comm_bps = wire_of(mesh, MeshAxis::kData).bps;
  rates.tensor_bps = wire_of(mesh, MeshAxis::kTensor).bps;
  rates.pipe_bps = wire_of(mesh, MeshAxis::kPipeline).bps;
  rates.units = unit_seconds(machine_, options, spec_of(options.model, options.part));
  return rates;
}

EngineOptions Planner::at_stage(const EngineOptions& options, int stage) {
  const ParallelOptions& mesh = options.parallel;
  std::vector<ModelPart>& parts = parts_[{mesh.pipeline, mesh.virtual_stages, mesh.stage_layers}];
  for (int s = static_cast<int>(parts.size()); s < mesh.pipeline; ++s) {
    parts.push_back(part_of_rank(options.model, mesh, {.pp = s}));
  }
  EngineOptions of_stage = options;
  of_stage.part = nth(parts, stage);
  of_stage.part.tensor = mesh.tensor;
  of_stage.part.sequence = mesh.sequence && mesh.tensor > 1;
  // Sequence-parallel units cannot generate token by token.
  if (of_stage.part.sequence) of_stage.generate_positions = 0;
  return of_stage;
}

const Planner::Kinds& Planner::profiles(const EngineOptions& options) {
  const ModelPart& part = options.part;
  const ModelPart all{
      .tensor = part.tensor, .tensor_rank = part.tensor_rank, .sequence = part.sequence};
  const PartKey slice{options.model.recompute_attention, options.model.on_gpu, all};
  const bool splits = splits_backward(options, part);
  const ProfileKey key{slice,
                       options.train.micro_batch,
                       static_cast<int>(options.train.dtype),
                       gradients_add(options),
                       splits,
                       options.generate_positions};
  const auto found = profiles_.find(key);
  if (found != profiles_.end()) return found->second;
  auto model = models_.find(slice);
  if (model == models_.end()) {
    model = models_.emplace(slice, make_dry_model(options.model, all)).first;
  }
  Kinds kinds;
  const ModelSpec& spec = model->second.spec;
  for (std::size_t u = 0; u < spec.units.size(); ++u) {
    if (kinds.count(kind_of(spec, u)) > 0) continue;
    kinds[kind_of(spec, u)] = profile_of(options, model->second, u, splits);
  }
  return profiles_.emplace(key, kinds).first->second;
}

const ModelSpec& Planner::spec_of(const ModelOptions& model, const ModelPart& part) {
  const PartKey key{model.recompute_attention, model.on_gpu, part};
  const auto found = specs_.find(key);
  if (found != specs_.end()) return found->second;
  return specs_.emplace(key, make_model_spec(model, part)).first->second;
}

Planner::Kinds Planner::drawn_profiles(const EngineOptions& options) {
  const std::int64_t samples = options.train.micro_batch;
  // A GPU's allocator rounds each tensor, so an extrapolation may exceed the true figure.
  if (samples <= 2 || options.model.on_gpu) return profiles(options);
  const std::int64_t passes = options.dp * micro_batches_of(options);
  EngineOptions fewer = options;
  fewer.train.micro_batch = 1;
  fewer.train.global_batch = passes;
  const Kinds one = profiles(fewer);
  fewer.train.micro_batch = 2;
  fewer.train.global_batch = 2 * passes;
  Kinds kinds = profiles(fewer);
  for (auto& [kind, profile] : kinds) draw_out(one.at(kind), samples, profile);
  return kinds;
}

StepPlan Planner::lower_shape_of(const EngineOptions& options) {
  return assemble(options, spec_of(options.model, options.part), drawn_profiles(options));
}

StepPlan Planner::shape_of(const EngineOptions& options) {
  return assemble(options, spec_of(options.model, options.part), profiles(options));
}

TierBytes Planner::budgets_of(const PlanQuestion& question) const {
  std::int64_t device = question.budgets.device;
  if (device == 0 && machine_.gpu && machine_.device_memory_bytes > 0) {
    // 0 would be no limit.
    device =
        std::max<std::int64_t>(1, machine_.device_memory_bytes - machine_.device_overhead_bytes);
  }
  return {device, question.budgets.host, question.budgets.nvme};
}

StagePlan Planner::open_stage(const EngineOptions& options) {
  StagePlan plan;
  plan.stage = options.part.stage;
  StepPlan step = shape_of(options);
  plan.shape = std::move(step.shape);
  plan.in_flight = most_in_flight(plan.shape);
  for (const GroupPlan& group : step.groups) plan.params_held += group.param_elems;
  for (const UnitSpec& unit : spec_of(options.model, options.part).units) {
    plan.unit_names.push_back(unit.name);
  }
  return plan;
}

OpenPlan Planner::open(const PlanQuestion& question) {
  const EngineOptions& options = question.options;
  OpenPlan open{.budgets = question.budgets, .gpu = machine_.gpu};
  open.budgets.device = budgets_of(question).front();
  RunPlan& plan = open.plan;
  for (int s = 0; s < options.parallel.pipeline; ++s) {
    const EngineOptions of_stage = at_stage(options, s);
    plan.stages.push_back(open_stage(of_stage));
    open.rates.push_back(rates(of_stage));
  }
  plan.ranks = world_of(options);
  plan.nodes = nodes_of(machine_, plan.ranks);
  plan.wires = wires(options);
  plan.mesh = options.parallel;
  plan.mesh.data = options.dp;
  const ModelSpec& whole = spec_of(options.model, {});
  plan.params = whole.param_count();
  plan.frozen_params = whole.frozen_param_count();
  const std::int64_t micro_batches = plan.stages.front().shape.micro_batches;
  const std::int64_t samples = options.train.micro_batch * options.dp * micro_batches;
  plan.tokens_per_step = samples * options.model.seq;
  plan.model_flops_per_step = model_flops_per_step(options, whole);
  plan.peak_flops = peak_flops_of(machine_, rank_question(options));
  return open;
}

RunPlan complete(OpenPlan open) {
  RunPlan plan = std::move(open.plan);
  std::vector<StagePlan>& stages = plan.stages;
  parallel_for(std::ssize(stages), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) write_program(open, nth(stages, s));
  });
  set_times(stages, open.rates);
  StagePlan& worst = stages[largest_stage(stages, 0, stages.size())];
  Program program = std::exchange(worst.program, {});
  static_cast<StagePlan&>(plan) = worst;
  plan.program = std::move(program);
  plan.node = largest_node(stages, plan.ranks, std::max(1, open.budgets.ranks_of_host));
  return plan;
}

LaneSeconds hiding_tokens(const StepShape& shape, const Rates& rates,
                          std::int64_t tokens_of_micro_batch, AccumulationOrder order) {
  const auto busy_with = [&](int micro_batches) {
    StepShape other = shape;
    other.micro_batches = micro_batches;
    other.layer_major = order == AccumulationOrder::kLayer;
    // With several micro-batches in micro order, gradients do not pass and are stored in fp32.
    // Whether gradients pass changes no time.
    if (!other.layer_major) other.placement.gradients_dtype = DType::kFloat32;
    // Ranks without full gradients reduce every micro-batch.
    const bool whole = other.stage < 2 || keeps_full_gradients(other);
    if (!other.layer_major && !whole) other.reduce_every = ReduceEvery::kMicroBatch;
    round_gradients(other);
    pass_gradients(other);
    const Program program = write_train_step(other);
    return schedule(program, op_seconds(program, other, rates), rates.disk_duplex).busy;
  };
  // From two micro-batches on, each further one adds the same time.
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
