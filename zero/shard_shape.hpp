// How the states of a rank are laid out: ZeRO stage, groups, placement. Integers only. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "base/index.hpp"
#include "offload/image_size.hpp"
#include "offload/offload_options.hpp"
#include "zero/optimizer_rule.hpp"
#include "zero/zero_options.hpp"

namespace sluice {

struct GroupShape {
  std::int64_t elems = 0;  // with padding
  std::int64_t shard_elems = 0;
  bool resident = true;  // the full parameters stay in memory between uses
  // The parameters are read and never updated (train.freeze).
  bool frozen = false;
  // Other ranks hold the same parameters and have gradients of their own for them, which are added
  // up before the norm (kAddReplicas): the tensor-parallel ranks or, of a group that is `at_ends`,
  // the first and the last pipeline stage.
  bool add_replicas = false;
  bool at_ends = false;
};

// Chunks begin at multiples of this: a block of the norm's sum (kernels/cpu/reduce.hpp), so that a
// gradient summed chunk by chunk has the bits of one summed whole, and a page in 16 bits.
inline constexpr std::int64_t kChunkAlignElems = 4096;

// The tier of each kind of state, and how off-device states pass through the host.
struct Placement {
  Tier optimizer = Tier::kDevice;    // master weights and moments
  Tier parameters = Tier::kDevice;   // shards of groups that are not resident: stage 3
  Tier gradients = Tier::kDevice;    // gradient shards: stages 2 and 3
  Tier activations = Tier::kDevice;  // inputs of units, and without recomputation what they keep
  // Of an optimizer on host or NVMe: the share of the elements whose states stay on the device and
  // are updated there.
  double device_fraction = 0;
  // Of moments on host or NVMe: fp32, or bf16 rounded stochastically.
  DType moments_dtype = DType::kFloat32;
  std::int64_t chunk_elems = std::int64_t{4} << 20;  // updated at once; a multiple of the above
  int chunk_slots = 4;                               // chunks on the host at a time
  // States on NVMe: chunks whose gradients are complete early are updated before the norm is known.
  bool speculate = false;
  // States on NVMe are written beside those of the step before and committed at each step.
  bool image = false;
  std::int64_t grain_bytes = kImageGrainBytes;  // on NVMe, under one checksum
};

[[nodiscard]] constexpr bool leaves_device(const Placement& p) {
  return p.optimizer != Tier::kDevice || p.parameters != Tier::kDevice ||
         p.gradients != Tier::kDevice || p.activations != Tier::kDevice;
}
[[nodiscard]] constexpr bool uses_nvme(const Placement& p) {
  return p.optimizer == Tier::kNvme || p.parameters == Tier::kNvme || p.gradients == Tier::kNvme ||
         p.activations == Tier::kNvme;
}

struct ShardShape {
  int stage = 0;
  int dp = 1;
  int micro_batches = 1;
  DType dtype = DType::kFloat32;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
  // All groups are frozen: the run does not train.
  bool frozen = false;
  OptimizerType optimizer = OptimizerType::kAdamW;
  Placement placement;
  std::vector<GroupShape> groups;
};

// Stage 0: each rank holds and updates whole groups. Other stages: its shard of each group.
[[nodiscard]] constexpr bool owns_whole_groups(const ShardShape& shape) { return shape.stage == 0; }

// A frozen group has parameters alone: no master weights, moments and gradients.
[[nodiscard]] constexpr bool is_frozen(const ShardShape& shape, int g) {
  return shape.frozen || nth(shape.groups, g).frozen;
}

// Full gradients of all trained groups stay in memory between steps (stages 0 and 1).
[[nodiscard]] constexpr bool keeps_full_gradients(const ShardShape& shape) {
  return shape.stage < 2 && !shape.frozen;
}

// Gradients of a group are summed over the group's whole step in a shard of their own (true), or in
// the rank's slice of the full gradient buffer (false: stages 0 and 1 where a step reduces only
// once).
[[nodiscard]] constexpr bool has_gradient_shard(const ShardShape& shape) {
  return shape.stage >= 2 ||
         (shape.reduce_every == ReduceEvery::kMicroBatch && shape.micro_batches > 1);
}

// The elements of a group that this rank owns, and updates unless the group is frozen.
[[nodiscard]] constexpr std::int64_t owned_elems(const ShardShape& shape, int g) {
  const GroupShape& group = nth(shape.groups, g);
  return owns_whole_groups(shape) ? group.elems : group.shard_elems;
}
// First element of a group that data-parallel rank `dp_rank` updates.
[[nodiscard]] constexpr std::int64_t owned_begin(const ShardShape& shape, int g, int dp_rank) {
  return owns_whole_groups(shape) ? 0 : dp_rank * nth(shape.groups, g).shard_elems;
}
// Shards of each group that one rank owns.
[[nodiscard]] constexpr int owned_shards(const ShardShape& shape) {
  return owns_whole_groups(shape) ? shape.dp : 1;
}
// Of the owned elements, the first ones have their states on the device and are updated there.
[[nodiscard]] std::int64_t device_elems(const ShardShape& shape, int g);
// The others: their states are on placement.optimizer.
[[nodiscard]] inline std::int64_t off_device_elems(const ShardShape& shape, int g) {
  return is_frozen(shape, g) ? 0 : owned_elems(shape, g) - device_elems(shape, g);
}

// The tier of a group's parameters: of the full ones of a resident group, else of the rank's shard.
[[nodiscard]] constexpr Tier parameter_tier(const ShardShape& shape, int g) {
  return nth(shape.groups, g).resident ? Tier::kDevice : shape.placement.parameters;
}
[[nodiscard]] inline std::int64_t moments_of(const ShardShape& shape) {
  return static_cast<std::int64_t>(rule_of(shape.optimizer).moments);
}
// Master weights and moments of one element off the device.
[[nodiscard]] inline std::int64_t away_state_bytes(const ShardShape& shape) {
  return 4 + moments_of(shape) * size_of(shape.placement.moments_dtype);
}
// Updates of `elems` elements as a number of AdamW's, whose rate is measured: memory is the limit.
[[nodiscard]] inline double adamw_updates(const ShardShape& shape, double elems) {
  const auto moved = static_cast<double>(rule_of(shape.optimizer).moved_bytes());
  return elems * (moved / static_cast<double>(rule_of(OptimizerType::kAdamW).moved_bytes()));
}
// In fp32 the parameters are their own master weights, where both live on one tier.
[[nodiscard]] constexpr bool params_are_master(const ShardShape& shape, int g) {
  return !is_frozen(shape, g) && shape.dtype == DType::kFloat32 &&
         parameter_tier(shape, g) == shape.placement.optimizer;
}

}  // namespace sluice
