#include "runtime/plan/step_profile.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "parallel/comm/exchange_plan.hpp"
#include "runtime/engine/graph_choice.hpp"
#include "runtime/engine/replica_sums.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/unit_profile.hpp"
#include "runtime/plan/passing_gradients.hpp"
#include "runtime/plan/programs/planned_program.hpp"
#include "runtime/plan/score_bytes.hpp"
#include "runtime/program/check/pipeline_check.hpp"
#include "runtime/program/write/step_writer.hpp"

namespace sluice {
namespace {

std::vector<GroupPlan> plan_groups(const ModelSpec& spec, int dp) {
  std::vector<GroupPlan> plans;
  for (const ParamGroup& group : spec.groups) {
    std::vector<TensorSpec> tensors;
    for (const ParamSpec& param : group.params) tensors.push_back(param.tensor);
    plans.push_back(plan_group(group.name, tensors, dp));
  }
  return plans;
}

std::vector<int> groups_of(const UnitSpec& unit) {
  std::vector<int> groups;
  for (const ParamRef& ref : unit.params) {
    if (std::find(groups.begin(), groups.end(), ref.group) == groups.end()) {
      groups.push_back(ref.group);
    }
  }
  return groups;
}

std::int64_t staging_bytes(const StepShape& shape) {
  std::int64_t shard_elems = 0;
  for (const GroupShape& group : shape.groups) {
    if (!group.frozen) shard_elems += group.shard_elems;
  }
  BucketCutter cutter(shape.bucket_bytes, shape.dp);
  std::int64_t largest = 0;
  for (const auto& bucket : cutter.add(0, shard_elems))
    largest = std::max(largest, bucket[0].elems);
  for (const BucketPiece& rest : cutter.flush()) largest = std::max(largest, rest.elems);
  return exchange_staging_bytes(shape.dp, largest, {DType::kFloat32, sent_dtype(shape)});
}

// Bytes for one piece of each replica's gradients, or for a sum in place, of the largest group with
// replicas.
std::int64_t replica_staging_bytes(const StepShape& shape, const ModelSpec& spec) {
  std::int64_t bytes = 0;
  for (std::size_t g = 0; g < shape.groups.size(); ++g) {
    if (!shape.groups[g].add_replicas) continue;
    const int ranks = spec.groups[g].replicas == Replicas::kTied ? 2 : shape.tensor;
    const std::int64_t elems = shape.groups[g].elems;
    bytes = std::max(bytes, 4 * ranks * std::min(kReplicaPiece, elems));
    if (!sums_in_place(shape, spec, g, elems)) continue;
    bytes = std::max(bytes, exchange_staging_bytes(ranks, elems / ranks, DType::kFloat32));
  }
  return bytes;
}

PipelineShape pipeline_of(const EngineOptions& options, const ModelSpec& spec) {
  const ModelPart& part = spec.part;
  PipelineShape pipeline;
  if (part.stages == 1) return pipeline;
  pipeline.stages = part.stages;
  pipeline.stage = part.stage;
  pipeline.schedule = options.parallel.schedule;
  int end = 0;
  for (const UnitRange& chunk : part.chunks) {
    end += chunk.end - chunk.begin;
    pipeline.chunk_ends.push_back(end);
  }
  check(end == static_cast<int>(spec.units.size()), "a stage's units are those of its chunks");
  const std::int64_t tokens = options.train.micro_batch * part.own_tokens(spec.options.seq);
  pipeline.message_bytes = tokens * spec.options.hidden * size_of(options.train.dtype);
  pipeline.boundary_bytes =
      spec.options.on_gpu ? cuda_block_bytes(pipeline.message_bytes) : pipeline.message_bytes;
  return pipeline;
}

Placement placement_of(const OffloadOptions& offload) {
  constexpr std::int64_t kAlign = kChunkAlignElems;
  return {.optimizer = offload.optimizer,
          .parameters = offload.parameters,
          .gradients = offload.gradients,
          .activations = offload.activations,
          .device_fraction = offload.device_fraction,
          .moments_dtype = offload.states_dtype,
          .gradients_dtype = offload.gradients_dtype,
          .chunk_elems = std::max(kAlign, offload.chunk_bytes / 4 / kAlign * kAlign),
          .chunk_slots = offload.chunks,
          .speculate = offload.speculate != Speculation::kNever,
          .image = offload.image,
          .grain_bytes = std::min(kImageGrainBytes, offload.block_bytes)};
}

// Placement of a run that does not train: only parameters, no other states.
Placement frozen_placement(const OffloadOptions& offload) {
  return {.parameters = offload.parameters,
          .grain_bytes = std::min(kImageGrainBytes, offload.block_bytes)};
}

// A GPU, or a test's device, has memory separate from the host.
std::int64_t bounce_bytes_of(const EngineOptions& options) {
  const bool apart = options.model.on_gpu || options.tiers.make_copies != nullptr;
  return apart ? options.tiers.bounce_bytes : 0;
}

// The least elements of a group whose gather rounds master weights (zero/README.md).
std::optional<std::int64_t> rounds_from(const StepShape& shape, const EngineOptions& options) {
  const bool may = shape.stage == 3 && shape.dtype == DType::kFloat16 &&
                   shape.placement.optimizer == Tier::kDevice && !shape.frozen;
  if (!may) return std::nullopt;
  if (options.zero.rounds_from) return options.zero.rounds_from;
  return options.model.on_gpu ? std::optional<std::int64_t>(16384) : std::nullopt;
}

void lay_out(StepShape& shape, const StepPlan& plan, const EngineOptions& options) {
  shape.stage = options.zero.stage;
  shape.recompute = options.recompute.mode == RecomputeMode::kFull;
  shape.reduce_every = reduce_every_of(options);
  shape.frozen = options.purpose != EnginePurpose::kTrain;
  shape.optimizer = options.optimizer.type;
  if (!shape.frozen) check_rule(rule_of(shape.optimizer), options.offload.states_dtype);
  shape.placement =
      shape.frozen ? frozen_placement(options.offload) : placement_of(options.offload);
  shape.bounce_bytes = bounce_bytes_of(options);
  shape.host_budget_bytes = options.tiers.host_budget;
  shape.store = {.queue_depth = options.tiers.nvme.queue_depth,
                 .checksums = options.tiers.nvme.checksums};
  const std::optional<std::int64_t> rounded = rounds_from(shape, options);
  shape.rounds_master = rounded.has_value();
  // The shards of a rank alone are whole groups: a slot would hold a copy of what is kept.
  const bool alone = shape.dp == 1 && shape.placement.parameters == Tier::kDevice;
  for (std::size_t g = 0; g < shape.groups.size(); ++g) {
    const std::int64_t elems = plan.groups[g].param_elems;
    const bool kept = alone && (!rounded || shape.groups[g].frozen || elems < *rounded);
    shape.groups[g].resident = shape.stage < 3 || kept || elems < options.zero.persist_below;
  }
  share_states(shape, options.offload.host_fraction);
  // A step in fp16 may be thrown away for its loss scale, as a whole.
  shape.updates_in_backward = options.train.clip == 0 && shape.dtype != DType::kFloat16;
  round_gradients(shape);
  pass_gradients(shape);
}

// The shape of a decode program: the same parameters, and the memory of units that decode. Declares
// no exchanges, because their size depends on a call's number of positions.
StepShape decoding_shape(const StepShape& shape, const EngineOptions& options,
                         const std::vector<UnitProfile>& profiles) {
  StepShape decoding = shape;
  decoding.micro_batches = 1;
  decoding.layer_major = false;
  decoding.batch_bytes = options.generate_positions * 2 * 8;
  for (std::size_t u = 0; u < decoding.units.size(); ++u) {
    decoding.units[u].memory = profiles[u].decoding;
    decoding.units[u].exchanges = {};
  }
  return decoding;
}

UnitShape unit_shape(const ModelSpec& spec, std::size_t u, const UnitProfile& profile, DType dtype,
                     double samples) {
  const UnitSpec& unit = spec.units[u];
  const bool again = spec.options.recompute_attention;
  const ScoreBytes scores = score_bytes(spec, unit, dtype, samples);
  return {.groups = groups_of(unit),
          .backward_reads_params = profile.backward_reads_params,
          .memory = profile.memory,
          .kept_moves = profile.kept_moves,
          .forward_flops = spec.forward_flops_per_sample(unit) * samples,
          .weight_flops = spec.weight_flops_per_sample(unit) * samples,
          .recomputed_flops = again ? spec.attention_flops_per_sample(unit) * samples : 0,
          .forward_score_bytes = scores.forward,
          .backward_score_bytes = scores.backward,
          .exchanges = profile.exchanges};
}

// Checks no pipeline: other stages may have groups that are not resident.
void refuse_idle_tier(const StepPlan& plan, const EngineOptions& options) {
  const Tier tier = options.offload.parameters;
  if (tier == Tier::kDevice || plan.shape.pipeline.stages > 1) return;
  std::int64_t largest = 0;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!plan.shape.groups[g].resident) return;
    largest = std::max(largest, plan.groups[g].param_elems);
  }
  throw ConfigError(
      "offload.parameters: " + std::string(name_of(tier)) + " moves nothing: the model's largest " +
      "group of parameters has " + std::to_string(largest) +
      " elements, and zero.persist_below: " + std::to_string(options.zero.persist_below) +
      " keeps groups of fewer gathered on the device; lower that, or leave parameters on the "
      "device");
}

// Graphs find each micro-batch in a buffer of its own. The program counts one where it loads.
void count_batches(StepShape& shape, const EngineOptions& options, const ModelSpec& spec) {
  const bool packed = spec.options.packed_rows && spec.options.on_gpu;
  const std::int64_t rows = options.train.micro_batch, seq = spec.options.seq;
  const std::int64_t documents = packed ? Documents::device_bytes(rows, seq) : std::int64_t{0};
  shape.batch_bytes = rows * seq * 2 * 8 + documents;
  const std::int64_t micro_batches = micro_batches_of(options);
  if (!launches_graphs(options, micro_batches)) return;
  const bool loads = spec.part.begins_model() || spec.part.ends_model();
  shape.library_bytes +=
      loads ? (micro_batches - 1) * shape.batch_bytes : micro_batches * documents;
}

// With one micro-batch the order decides only where buckets end. Buckets that end with their unit
// free full gradients sooner in stages 2 and 3. That costs a rank alone no exchange, and is worth
// one where gradients leave the device; elsewhere buckets go on, for fewer exchanges.
bool runs_by_layer(const EngineOptions& options) {
  if (micro_batches_of(options) == 1 && options.parallel.pipeline == 1) {
    const bool ends_early = options.dp == 1 || options.offload.gradients != Tier::kDevice;
    return options.zero.stage >= 2 && ends_early;
  }
  return options.train.accumulation_order == AccumulationOrder::kLayer;
}

bool is_whole(const ModelSpec& spec) { return spec.part.tensor == 1 && spec.part.stages == 1; }

}  // namespace

std::string_view name_of(RecomputeMode mode) {
  if (mode == RecomputeMode::kNone) return "none";
  return mode == RecomputeMode::kFull ? "full" : "selective";
}

ReduceEvery reduce_every_of(const EngineOptions& options) {
  const bool lone = options.model.on_gpu && options.dp == 1;
  const bool layer = options.train.accumulation_order == AccumulationOrder::kLayer;
  const bool rounds = options.offload.gradients_dtype != DType::kFloat32;
  const bool updates = options.offload.optimizer == Tier::kDevice;
  const bool once = options.offload.gradients == Tier::kDevice
                        ? lone || (options.dp == 1 && updates && layer && rounds)
                        : layer && (lone || rounds);
  return once ? ReduceEvery::kStep : options.zero.reduce_every;
}

bool gradients_add(const EngineOptions& options) {
  return reduce_every_of(options) == ReduceEvery::kStep && micro_batches_of(options) > 1;
}

std::int64_t micro_batches_of(const EngineOptions& options) {
  const std::int64_t per_pass = options.train.micro_batch * options.dp;
  const std::int64_t global =
      options.train.global_batch > 0 ? options.train.global_batch : per_pass;
  check(global % per_pass == 0, "the global batch is a whole number of micro-batches");
  return global / per_pass;
}

void apply_layout(StepPlan& plan, const EngineOptions& options) {
  StepShape& shape = plan.shape;
  shape.micro_batches = countable_micro_batches(micro_batches_of(options));
  shape.layer_major = runs_by_layer(options);
  lay_out(shape, plan, options);
  if (!plan.decoding) return;
  lay_out(*plan.decoding, plan, options);
  shape.other_arena_bytes = write_decode_step(*plan.decoding).arena_bytes;
}

std::int64_t whole_param_count(const ModelSpec& spec) {
  return is_whole(spec) ? spec.param_count() : make_model_spec(spec.options).param_count();
}

double model_flops_per_step(const EngineOptions& options, const ModelSpec& spec) {
  if (!is_whole(spec)) return model_flops_per_step(options, make_model_spec(spec.options));
  const auto samples =
      static_cast<double>(options.train.micro_batch * micro_batches_of(options) * options.dp);
  double flops = 0;
  bool trained = false;  // this unit or an earlier one is trained
  for (std::size_t u = 0; u < spec.units.size(); ++u) {
    const std::vector<bool> frozen = frozen_params(spec, u);
    trained = trained || std::find(frozen.begin(), frozen.end(), false) != frozen.end();
    const UnitSpec& unit = spec.units[u];
    flops += (trained ? 2 : 1) * spec.forward_flops_per_sample(unit);
    if (trained) flops += spec.weight_flops_per_sample(unit);
  }
  return flops * samples;
}

bool splits_backward(const EngineOptions& options, const ModelPart& part) {
  return part.stages > 1 && options.parallel.schedule == PipelineSchedule::kZeroBubble;
}

UnitProfile profile_of(const EngineOptions& options, const Model& model, std::size_t unit,
                       bool split_backward) {
  const bool head = model.spec.units[unit].kind == UnitKind::kLossHead;
  const bool block = model.spec.units[unit].kind == UnitKind::kBlock;
  const std::int64_t seq = model.spec.options.seq;
  UnitProfile profile;
  profile.backward_reads_params = head || model.units[unit]->backward_reads_params();
  profile.kept_moves = block && model.units[unit]->saved_moves();
  if (options.purpose != EnginePurpose::kGenerate) {
    const ProfileShape shape{options.train.micro_batch, seq, options.train.dtype,
                             gradients_add(options), split_backward};
    profile.memory = profile_unit(model, unit, shape);
    if (model.spec.part.tensor > 1) profile.exchanges = unit_exchanges(model, unit, shape);
  }
  if (options.generate_positions > 0) {
    const std::int64_t positions = options.generate_positions;
    profile.decoding = profile_cached_unit(model, unit, positions, options.train.dtype);
    profile.decoding.cache = cache_bytes(model, unit, positions, options.train.dtype);
  }
  return profile;
}

void check_stages(std::span<const Program> train, std::span<const StepShape> shapes) {
  if (shapes.size() < 2) return;
  std::vector<Program> evaluation;
  for (const StepShape& shape : shapes) evaluation.push_back(write_eval_step(shape));
  for (const std::span<const Program> programs : {train, std::span<const Program>(evaluation)}) {
    const std::string fault = find_pipeline_fault(programs);
    if (fault.empty()) continue;
    throw Error("the programs of the pipeline's stages do not fit together, a fault of sluice: " +
                fault);
  }
}

StepPlan plan_step(const EngineOptions& options, const Model& model) {
  const bool splits = splits_backward(options, model.spec.part);
  // All blocks with equal frozen parameters share one profile.
  std::vector<UnitProfile> profiles;
  for (std::size_t u = 0; u < model.spec.units.size(); ++u) {
    const bool block = model.spec.units[u].kind == UnitKind::kBlock;
    const bool like_last = block && u > 0 && model.spec.units[u - 1].kind == UnitKind::kBlock &&
                           frozen_params(model.spec, u) == frozen_params(model.spec, u - 1);
    profiles.push_back(like_last ? profiles.back() : profile_of(options, model, u, splits));
  }
  StepPlan plan = plan_step(options, model.spec, profiles);
  plan.model_flops_per_step = model_flops_per_step(options, model.spec);
  refuse_long_program(plan.shape);
  return plan;
}

StepPlan plan_step(const EngineOptions& options, const ModelSpec& spec,
                   const std::vector<UnitProfile>& profiles) {
  check(profiles.size() == spec.units.size(), "a profile of each unit");
  StepPlan plan;
  plan.groups = plan_groups(spec, options.dp);
  StepShape& shape = plan.shape;
  shape.dp = options.dp;
  // The units recompute attention only if the model was made with recompute_attention.
  check(options.recompute.mode != RecomputeMode::kSelective || spec.options.recompute_attention,
        "recompute.mode selective needs a model made with recompute_attention");
  shape.dtype = options.train.dtype;
  shape.bucket_bytes = options.zero.bucket_bytes;
  shape.reduce_dtype = options.zero.reduce_dtype;
  shape.prefetch_units = options.zero.prefetch_units;
  shape.constant_bytes = spec.constant_bytes();
  shape.on_gpu = spec.options.on_gpu;
  shape.small_block = shape.on_gpu ? kSmallCudaBlock : 0;
  shape.library_bytes = shape.on_gpu ? device_library_bytes(spec.options) : 0;
  count_batches(shape, options, spec);
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const ParamGroup& group = spec.groups[g];
    shape.groups.push_back(
        {.elems = plan.groups[g].elems,
         .shard_elems = plan.groups[g].shard_elems,
         .frozen = group.frozen,
         .add_replicas = group.replicas != Replicas::kNone && group.sums_replicas && !group.frozen,
         .at_ends = group.replicas == Replicas::kTied});
  }
  shape.tensor = spec.part.tensor;
  shape.most_groups = spec.part.most_groups;
  shape.pipeline = pipeline_of(options, spec);
  if (shape.on_gpu && micro_batches_of(options) > 1) {
    shape.library_bytes += cuda_gap_bytes(shape.pipeline.message_bytes);
  }
  const auto samples = static_cast<double>(options.train.micro_batch);
  for (std::size_t u = 0; u < spec.units.size(); ++u) {
    shape.units.push_back(unit_shape(spec, u, profiles[u], options.train.dtype, samples));
  }
  apply_layout(plan, options);
  refuse_idle_tier(plan, options);
  if (!shape.frozen) {
    shape.replica_staging_bytes = replica_staging_bytes(shape, spec);
    shape.comm_staging_bytes = staging_bytes(shape);
  }
  if (options.generate_positions > 0) {
    plan.decoding = decoding_shape(shape, options, profiles);
    apply_layout(plan, options);
  }
  return plan;
}

}  // namespace sluice
