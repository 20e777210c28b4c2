// The layout of a rank's states: ZeRO stage, groups, placement. Pure.
#pragma once

#include <cstdint>
#include <limits>
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
  // Replicas of the group have gradients of their own, which are added before the norm
  // (kAddReplicas). Replicas are the tensor-parallel ranks or, for a group with `at_ends`, the
  // first and the last pipeline stage.
  bool add_replicas = false;
  bool at_ends = false;
  // With optimizer states on NVMe: those of this group are on the host (share_states()).
  bool states_on_host = false;
  // The group's backward writes gradients to an fp32 slot. They are rounded from there to
  // Placement::gradients_dtype once they are complete. Only where may_round_gradients().
  bool rounds_gradients = false;
  // Above 0: passing gradients, in this many bytes of the device's allocator, which activations
  // have left. The gradients that an update reads (lasting_gradient_elems()) exist from the
  // operation that opens or rounds them to the group's update or the last update of the step. Only
  // where may_pass_gradients().
  std::int64_t passing_gradient_bytes = 0;
};

// Chunks begin at multiples of this number, which is a block of the norm's sum
// (kernels/cpu/reduce.hpp). A sum by chunks is then bit-identical to a sum of the whole gradient.
// In 16 bits the number is also a whole number of pages.
inline constexpr std::int64_t kChunkAlignElems = 4096;

// The tier of each kind of state, and the chunks of off-device states.
struct Placement {
  Tier optimizer = Tier::kDevice;    // master weights and moments
  Tier parameters = Tier::kDevice;   // shards of groups that are not resident: stage 3
  Tier gradients = Tier::kDevice;    // gradient shards: stages 2 and 3
  Tier activations = Tier::kDevice;  // inputs of units; without recomputation, saved tensors too
  // With optimizer states on host or NVMe: the share of elements whose states stay on the device.
  double device_fraction = 0;
  // Type of moments on every tier: fp32, or bf16 with stochastic rounding.
  DType moments_dtype = DType::kFloat32;
  // Type of off-device gradient shards, and on the device of groups with rounds_gradients
  // (gradient_dtype()): fp32, or bf16 rounded to nearest even.
  DType gradients_dtype = DType::kFloat32;
  std::int64_t chunk_elems = std::int64_t{4} << 20;  // a multiple of kChunkAlignElems
  int chunk_slots = 4;                               // slots of the ring
  // With states off-device: speculative updates of chunks whose gradients are complete early.
  bool speculate = false;
  // Most bytes on the host of the second places of such chunks.
  std::int64_t speculation_room_bytes = std::numeric_limits<std::int64_t>::max();
  // States on NVMe are an image: each step writes the other place and commits it.
  bool image = false;
  std::int64_t grain_bytes = kImageGrainBytes;  // grain on NVMe
};

[[nodiscard]] constexpr bool leaves_device(const Placement& p) {
  return p.optimizer != Tier::kDevice || p.parameters != Tier::kDevice ||
         p.gradients != Tier::kDevice || p.activations != Tier::kDevice;
}
[[nodiscard]] constexpr bool uses_nvme(const Placement& p) {
  return p.optimizer == Tier::kNvme || p.parameters == Tier::kNvme || p.gradients == Tier::kNvme ||
         p.activations == Tier::kNvme;
}

[[nodiscard]] constexpr bool keeps_image(const Placement& p) {
  return p.image && p.optimizer == Tier::kNvme;
}

struct ShardShape {
  int stage = 0;
  int dp = 1;
  int micro_batches = 1;
  DType dtype = DType::kFloat32;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
  // All groups are frozen: the run does not train.
  bool frozen = false;
  // Stage 3, fp16, master weights on the device: the rank keeps no parameter shard of a trained
  // group that is gathered. A gather rounds the group's master weights.
  bool rounds_master = false;
  OptimizerType optimizer = OptimizerType::kAdamW;
  Placement placement;
  std::vector<GroupShape> groups;
};

// In stage 0 each rank holds and updates whole groups; in other stages, its shard of each group.
[[nodiscard]] constexpr bool owns_whole_groups(const ShardShape& shape) { return shape.stage == 0; }

// A frozen group has only parameters: no master weights, moments or gradients.
[[nodiscard]] constexpr bool is_frozen(const ShardShape& shape, int g) {
  return shape.frozen || nth(shape.groups, g).frozen;
}

// Reduced gradients of several micro-batches are added up.
[[nodiscard]] constexpr bool sums_micro_batches(const ShardShape& shape) {
  return shape.reduce_every == ReduceEvery::kMicroBatch && shape.micro_batches > 1;
}

// Type of the group's gradients that last until the update. Only complete gradients are rounded, so
// gradients that are added after that are fp32: those of replicas.
[[nodiscard]] constexpr DType gradient_dtype(const ShardShape& shape, int g) {
  const Placement& p = shape.placement;
  const GroupShape& group = nth(shape.groups, g);
  const bool rounds = p.gradients == Tier::kDevice ? group.rounds_gradients : !group.add_replicas;
  return rounds ? p.gradients_dtype : DType::kFloat32;
}

// Full gradients of all trained groups last until the update: in stages 0 and 1, and of a rank
// alone whose full gradients are the reduced ones. They have rows unless they pass.
[[nodiscard]] constexpr bool keeps_full_gradients(const ShardShape& shape) {
  const bool reduced =
      shape.dp == 1 && shape.placement.gradients == Tier::kDevice && !sums_micro_batches(shape);
  return (shape.stage < 2 || reduced) && !shape.frozen;
}

// True: gradients of a step are summed in a separate shard. False: in the rank's slice of the full
// gradient buffer.
[[nodiscard]] constexpr bool has_gradient_shard(const ShardShape& shape) {
  return sums_micro_batches(shape) || (shape.stage >= 2 && !keeps_full_gradients(shape));
}

// A rank alone without a gradient shard: its full gradients are the reduced ones where a backward
// writes them, so nothing is reduced.
[[nodiscard]] constexpr bool reduces_in_place(const ShardShape& shape) {
  return shape.dp == 1 && keeps_full_gradients(shape) && !has_gradient_shard(shape);
}

// Gradients may be rounded on the device: nothing is reduced, and the device updates.
[[nodiscard]] constexpr bool may_round_gradients(const ShardShape& shape) {
  return reduces_in_place(shape) && shape.placement.optimizer == Tier::kDevice &&
         shape.placement.gradients_dtype != DType::kFloat32;
}

// Elements of the array of gradients that lasts until the update: the full gradients, or the shard
// beside full gradients that are freed once they are reduced.
[[nodiscard]] constexpr std::int64_t lasting_gradient_elems(const ShardShape& shape, int g) {
  const GroupShape& group = nth(shape.groups, g);
  return keeps_full_gradients(shape) ? group.elems : group.shard_elems;
}

// One array of a group's gradients lasts until the update, and the update is on the device.
[[nodiscard]] constexpr bool may_pass_gradients(const ShardShape& shape) {
  return keeps_full_gradients(shape) != has_gradient_shard(shape) && !shape.frozen &&
         shape.placement.optimizer == Tier::kDevice;
}

// False in stage 0 and for a resident group of a single rank: updates write the full parameters in
// place, so no gather follows.
[[nodiscard]] constexpr bool is_gathered(const ShardShape& shape, int g) {
  return shape.stage > 0 && (shape.dp > 1 || !nth(shape.groups, g).resident);
}

// The group's parameters are its master weights, rounded by each gather: there is no shard.
[[nodiscard]] constexpr bool rounds_master(const ShardShape& shape, int g) {
  return shape.rounds_master && !nth(shape.groups, g).resident && !is_frozen(shape, g);
}
// A rank alone rounds on the compute lane: nothing is sent.
[[nodiscard]] constexpr bool gathers_alone(const ShardShape& shape) {
  return shape.rounds_master && shape.dp == 1;
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
// Number of the first owned elements whose optimizer states live on the device. The device updates
// them.
[[nodiscard]] std::int64_t device_elems(const ShardShape& shape, int g);
// Number of owned elements whose states are off the device, on optimizer_tier().
[[nodiscard]] inline std::int64_t off_device_elems(const ShardShape& shape, int g) {
  return is_frozen(shape, g) ? 0 : owned_elems(shape, g) - device_elems(shape, g);
}

// Tier of the group's off-device master weights and moments. The first device_elems() elements stay
// on the device.
[[nodiscard]] constexpr Tier optimizer_tier(const ShardShape& shape, int g) {
  return nth(shape.groups, g).states_on_host ? Tier::kHost : shape.placement.optimizer;
}
// Sets states_on_host on whole groups, up to `host_fraction` of the off-device elements. The first
// group comes first (with early updates, several first groups). The others alternate with NVMe
// groups, which spreads transfers over the step. Does nothing unless the optimizer is on NVMe.
void share_states(ShardShape& shape, double host_fraction);

// The tier of a resident group's full parameters, or of another group's shard.
[[nodiscard]] constexpr Tier parameter_tier(const ShardShape& shape, int g) {
  return nth(shape.groups, g).resident ? Tier::kDevice : shape.placement.parameters;
}
[[nodiscard]] inline std::int64_t moments_of(const ShardShape& shape) {
  return static_cast<std::int64_t>(rule_of(shape.optimizer).moments);
}
// Bytes of whole master weights and moments, per element.
[[nodiscard]] inline std::int64_t state_bytes_of_element(const ShardShape& shape) {
  return 4 + moments_of(shape) * size_of(shape.placement.moments_dtype);
}
// The number of AdamW updates that take as long as updates of `elems` elements. Memory traffic
// limits both, and only the rate of AdamW is measured.
[[nodiscard]] inline double adamw_updates(const ShardShape& shape, double elems,
                                          DType moments = DType::kFloat32) {
  const auto moved = static_cast<double>(rule_of(shape.optimizer).moved_bytes(moments));
  return elems * (moved / static_cast<double>(rule_of(OptimizerType::kAdamW).moved_bytes()));
}
// Time of a host update that writes the new states to other memory, relative to an update in place.
// Measured on an EPYC: 1.1 to 1.35, depending on the number of cores.
inline constexpr double kUpdateElsewhere = 1.25;
// The group's bf16 parameters on `tier`, the device or the host, are the high part of its master
// weights, whose low 16 bits (StateArray::kRemainder) are all that is kept beside them. Not with an
// image, which must hold whole master weights.
[[nodiscard]] constexpr bool splits_master(const ShardShape& shape, int g, Tier tier) {
  return shape.dtype == DType::kBFloat16 && parameter_tier(shape, g) == tier &&
         !is_frozen(shape, g) && !keeps_image(shape.placement);
}
// Remainders stand for the master weights of the first device_elems() owned elements.
[[nodiscard]] constexpr bool keeps_device_remainders(const ShardShape& shape, int g) {
  return splits_master(shape, g, Tier::kDevice);
}
// Remainders stand for the off-device master weights, on the host or on NVMe.
[[nodiscard]] constexpr bool keeps_remainders(const ShardShape& shape, int g) {
  return splits_master(shape, g, Tier::kHost) && shape.placement.optimizer != Tier::kDevice;
}
// Bytes per element of optimizer states on the device, without the parameters. fp32 parameters are
// the master weights; bf16 parameters beside remainders are their high half. REQUIRES: the group's
// parameters are on the device.
[[nodiscard]] inline std::int64_t device_state_bytes(const ShardShape& shape, int g) {
  if (shape.dtype == DType::kFloat32) return state_bytes_of_element(shape) - 4;
  return state_bytes_of_element(shape) - (keeps_device_remainders(shape, g) ? 2 : 0);
}
// Bytes of the group's off-device master weights, or remainders, and moments, per element.
[[nodiscard]] inline std::int64_t away_state_bytes(const ShardShape& shape, int g) {
  return state_bytes_of_element(shape) - (keeps_remainders(shape, g) ? 2 : 0);
}
// A speculative update writes the group's new parameters to their second place on NVMe.
[[nodiscard]] constexpr bool has_second_params(const ShardShape& shape, int g) {
  return shape.placement.optimizer == Tier::kNvme && parameter_tier(shape, g) == Tier::kNvme;
}
// A speculative update writes the group's new 16-bit parameters to the device in place, because the
// step has used the old ones for the last time. If the step is discarded, the old parameters are
// computed again from the master weights. Not with activations off-device: their copies to the
// device would wait behind these copies.
[[nodiscard]] constexpr bool replaces_params_early(const ShardShape& shape, int g) {
  const Placement& p = shape.placement;
  return p.optimizer != Tier::kDevice && p.parameters == Tier::kDevice &&
         p.activations == Tier::kDevice && shape.dtype != DType::kFloat32 && !is_frozen(shape, g);
}
[[nodiscard]] constexpr bool writes_params_early(const ShardShape& shape, int g) {
  return has_second_params(shape, g) || replaces_params_early(shape, g);
}
// Bytes per element that the host moves for a deferred update after a kept speculative update: it
// only makes 16-bit parameters, from the master weights or from their second place.
[[nodiscard]] constexpr std::int64_t kept_update_bytes(const ShardShape& shape, int g) {
  const bool makes = shape.dtype != DType::kFloat32 && !writes_params_early(shape, g);
  return makes ? (keeps_remainders(shape, g) ? 2 : 4) + size_of(shape.dtype) : 0;
}
// fp32 parameters are their own master weights if both are on one tier.
[[nodiscard]] constexpr bool params_are_master(const ShardShape& shape, int g) {
  return !is_frozen(shape, g) && shape.dtype == DType::kFloat32 &&
         parameter_tier(shape, g) == optimizer_tier(shape, g);
}
// Whether updates of the group may begin before the norm is known (Placement::speculate). fp32
// parameters on the host are read in whole shards, so they have no second place. With states on
// NVMe, states on the host wait for the norm: early updates only serve to move disk traffic ahead.
[[nodiscard]] constexpr bool may_speculate(const ShardShape& shape, int g) {
  return shape.placement.optimizer != Tier::kDevice && !is_frozen(shape, g) &&
         !nth(shape.groups, g).states_on_host &&
         !(shape.placement.optimizer == Tier::kHost && params_are_master(shape, g));
}

}  // namespace sluice
