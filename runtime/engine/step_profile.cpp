#include "runtime/engine/step_profile.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "parallel/comm/exchange_plan.hpp"
#include "runtime/model/unit_profile.hpp"
#include "runtime/program/step_writer.hpp"

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

// Blocks are alike: one of them is run for all.
std::vector<UnitMemory> profile_units(const Model& model, const ProfileShape& shape) {
  std::vector<UnitMemory> memory;
  for (std::size_t u = 0; u < model.spec.units.size(); ++u) {
    const bool like_last = u > 1 && model.spec.units[u].kind == UnitKind::kBlock;
    memory.push_back(like_last ? memory.back() : profile_unit(model, u, shape));
  }
  return memory;
}

std::int64_t staging_bytes(const StepShape& shape) {
  std::int64_t shard_elems = 0;
  for (const GroupShape& group : shape.groups) shard_elems += group.shard_elems;
  BucketCutter cutter(shape.bucket_bytes, shape.dp);
  std::int64_t largest = 0;
  for (const auto& bucket : cutter.add(0, shard_elems))
    largest = std::max(largest, bucket[0].elems);
  for (const BucketPiece& rest : cutter.flush()) largest = std::max(largest, rest.elems);
  return exchange_staging_bytes(shape.dp, largest, DType::kFloat32);
}

Placement placement_of(const OffloadOptions& offload) {
  Placement placement{.optimizer = offload.optimizer,
                      .parameters = offload.parameters,
                      .gradients = offload.gradients,
                      .activations = offload.activations,
                      .device_fraction = offload.device_fraction,
                      .moments_dtype = offload.states_dtype};
  placement.chunk_elems =
      std::max(kChunkAlignElems, offload.chunk_bytes / 4 / kChunkAlignElems * kChunkAlignElems);
  placement.chunk_slots = offload.chunks;
  return placement;
}

// Only parameters are anywhere.
Placement frozen_placement(const OffloadOptions& offload) {
  return {.parameters = offload.parameters};
}

void lay_out(StepShape& shape, const StepPlan& plan, const EngineOptions& options) {
  shape.stage = options.zero.stage;
  shape.recompute = options.recompute.mode == RecomputeMode::kFull;
  shape.frozen = options.purpose != EnginePurpose::kTrain;
  shape.placement =
      shape.frozen ? frozen_placement(options.offload) : placement_of(options.offload);
  for (std::size_t g = 0; g < shape.groups.size(); ++g) {
    shape.groups[g].resident =
        shape.stage < 3 || plan.groups[g].param_elems < options.zero.persist_below;
  }
}

// The same parameters; units as they run one sequence in parts.
StepShape decoding_shape(const StepShape& shape, const EngineOptions& options, const Model& model) {
  const std::int64_t positions = options.generate_positions;
  StepShape decoding = shape;
  decoding.micro_batches = 1;
  decoding.layer_major = false;
  decoding.batch_bytes = positions * 2 * 8;
  for (std::size_t u = 0; u < decoding.units.size(); ++u) {
    UnitMemory& memory = decoding.units[u].memory;
    const bool like_last = u > 1 && model.spec.units[u].kind == UnitKind::kBlock;
    memory = like_last ? decoding.units[u - 1].memory
                       : profile_cached_unit(model, u, positions, shape.dtype);
    memory.cache = cache_bytes(model, u, positions, shape.dtype);
  }
  return decoding;
}

}  // namespace

std::string_view name_of(RecomputeMode mode) {
  return mode == RecomputeMode::kNone   ? "none"
         : mode == RecomputeMode::kFull ? "full"
                                        : "selective";
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
  shape.micro_batches = static_cast<int>(micro_batches_of(options));
  shape.layer_major = options.train.accumulation_order == AccumulationOrder::kLayer;
  lay_out(shape, plan, options);
  if (!plan.decoding) return;
  lay_out(*plan.decoding, plan, options);
  shape.other_arena_bytes = write_decode_step(*plan.decoding).arena_bytes;
}

StepPlan plan_step(const EngineOptions& options, const Model& model) {
  StepPlan plan;
  plan.groups = plan_groups(model.spec, options.dp);
  StepShape& shape = plan.shape;
  shape.dp = options.dp;
  // The model's units do it: whoever makes them has to have asked them to.
  check(
      options.recompute.mode != RecomputeMode::kSelective || model.spec.options.recompute_attention,
      "recompute.mode selective needs a model made with recompute_attention");
  shape.dtype = options.train.dtype;
  shape.reduce_every = options.zero.reduce_every;
  shape.bucket_bytes = options.zero.bucket_bytes;
  shape.prefetch_units = options.zero.prefetch_units;
  const std::int64_t tokens = options.train.micro_batch * model.spec.options.seq;
  shape.batch_bytes = tokens * 2 * 8;
  shape.constant_bytes = model.spec.constant_bytes();
  for (const GroupPlan& group : plan.groups) {
    shape.groups.push_back({.elems = group.elems, .shard_elems = group.shard_elems});
  }
  apply_layout(plan, options);
  const bool generates = options.purpose == EnginePurpose::kGenerate;
  const std::vector<UnitMemory> memory =
      generates ? std::vector<UnitMemory>(model.spec.units.size())
                : profile_units(
                      model, {options.train.micro_batch, model.spec.options.seq, shape.dtype,
                              shape.reduce_every == ReduceEvery::kStep && shape.micro_batches > 1});
  for (std::size_t u = 0; u < model.spec.units.size(); ++u) {
    const UnitSpec& unit = model.spec.units[u];
    const double flops = model.spec.forward_flops_per_sample(unit);
    const bool reads = unit.kind == UnitKind::kLossHead || model.units[u]->backward_reads_params();
    const bool moves = unit.kind == UnitKind::kBlock && model.units[u]->saved_moves();
    const double again =
        model.spec.options.recompute_attention ? model.spec.attention_flops_per_sample(unit) : 0;
    const auto samples = static_cast<double>(options.train.micro_batch);
    shape.units.push_back(
        {groups_of(unit), reads, memory[u], moves, flops * samples, again * samples});
    plan.model_flops_per_step +=
        3 * flops *
        static_cast<double>(options.train.micro_batch * shape.micro_batches * options.dp);
  }
  if (!shape.frozen) shape.comm_staging_bytes = staging_bytes(shape);
  if (options.generate_positions > 0) {
    plan.decoding = decoding_shape(shape, options, model);
    apply_layout(plan, options);
  }
  return plan;
}

}  // namespace sluice
