// What a program writer must know of a model, a rank and a configuration: integers only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "offload/image_size.hpp"
#include "offload/offload_options.hpp"
#include "parallel/parallel_options.hpp"
#include "zero/zero_options.hpp"

namespace sluice {

struct GroupShape {
  std::int64_t elems = 0;  // with padding
  std::int64_t shard_elems = 0;
  bool resident = true;  // its full parameters stay in memory between uses
  // Other ranks, tensor-parallel ones or another pipeline stage, hold the same parameters and have
  // gradients of their own for them, which are added up before the norm (kAddReplicas).
  bool add_replicas = false;
};

// Device bytes one unit needs for one micro-batch. Found by running the unit itself on the meta
// device (runtime/model/unit_profile.hpp), so they are those of the code that will run.
struct UnitMemory {
  std::int64_t output = 0;             // boundary activation
  std::int64_t kept = 0;               // what forward keeps for backward, beyond input and output
  std::int64_t forward_peak = 0;       // highest above the state before; keeping, output included
  std::int64_t forward_only_peak = 0;  // the same, keeping nothing
  std::int64_t backward_peak =
      0;  // highest above the state before backward; input gradient included
  std::int64_t recompute_peak = 0;  // the same, running the forward again first
  std::int64_t input_gradient = 0;
  std::int64_t scratch = 0;       // loss head: a slot of the arena it works in
  std::int64_t cache = 0;         // what it remembers of a sequence that is run in parts
  std::int64_t deferred = 0;      // held between a split backward and the gradients of its weights
  std::int64_t weights_peak = 0;  // highest above that while these are made
};

struct UnitShape {
  std::vector<int> groups;  // whose parameters it reads, and adds gradients to
  bool backward_reads_params = true;
  UnitMemory memory;
  bool kept_moves = false;   // what forward keeps can be taken away and brought back
  double forward_flops = 0;  // one micro-batch
  // Of these, what the unit's backward itself runs again (selective recomputation).
  double recomputed_flops = 0;
  // Sent by this rank to tensor-parallel ranks, one micro-batch, inside the unit.
  std::int64_t tensor_forward_bytes = 0;
  std::int64_t tensor_backward_bytes = 0;
  std::int64_t tensor_again_bytes = 0;  // of a backward that runs the forward again first
};

// The rank's place in the pipeline. Its units are those of its chunks, one after another; chunk c
// is stage c * stages + stage of stages * virtual_stages.
struct PipelineShape {
  int stages = 1;
  int stage = 0;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  std::vector<int> chunk_ends;      // by chunk: one past its last unit; empty without a pipeline
  std::int64_t boundary_bytes = 0;  // an activation between two stages, one micro-batch

  [[nodiscard]] int virtual_stages() const {
    return chunk_ends.empty() ? 1 : static_cast<int>(chunk_ends.size());
  }
};

// Chunks begin at multiples of this: a block of the norm's sum (kernels/cpu/reduce.hpp), so that a
// gradient summed chunk by chunk has the bits of one summed whole, and a page in 16 bits.
inline constexpr std::int64_t kChunkAlignElems = 4096;

// Which tier each kind of state lives on, and how what lives elsewhere passes through the host.
struct Placement {
  Tier optimizer = Tier::kDevice;    // master weights and moments
  Tier parameters = Tier::kDevice;   // shards of groups that are not resident: stage 3
  Tier gradients = Tier::kDevice;    // gradient shards: stages 2 and 3
  Tier activations = Tier::kDevice;  // inputs of units, and without recomputation what they keep
  double device_fraction = 0;        // of an offloaded optimizer: stays, and is updated there
  DType moments_dtype =
      DType::kFloat32;  // of an offloaded optimizer: fp32, or bf16 rounded stochastically
  std::int64_t chunk_elems = std::int64_t{4} << 20;  // updated at once; a multiple of the above
  int chunk_slots = 4;                               // chunks on the host at a time
  // States on NVMe: chunks whose gradients are there early are updated before the norm is known.
  bool speculate = false;
  // States on NVMe are written beside those of the step before and committed at each step.
  bool image = false;
  std::int64_t grain_bytes = kImageGrainBytes;  // on NVMe, under one checksum
};

[[nodiscard]] constexpr bool leaves_device(const Placement& p) {
  return p.optimizer != Tier::kDevice || p.parameters != Tier::kDevice ||
         p.gradients != Tier::kDevice || p.activations != Tier::kDevice;
}

struct StepShape {
  int stage = 0;
  int dp = 1;
  int micro_batches = 1;
  bool recompute = false;
  bool layer_major = false;  // each unit runs all micro-batches before the next unit runs
  DType dtype = DType::kFloat32;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
  std::int64_t bucket_bytes = 0;
  int prefetch_units = 1;
  std::int64_t batch_bytes = 0;         // tokens and targets of a micro-batch
  std::int64_t comm_staging_bytes = 0;  // of the largest bucket
  std::int64_t constant_bytes = 0;      // tables the units share, beside the parameters
  std::int64_t library_bytes = 0;       // workspaces of libraries, held from the first product on
  // Parameters are read and never updated: there are no master weights, moments and gradients.
  bool frozen = false;
  std::int64_t other_arena_bytes = 0;  // of the device's arena: what programs beside this one need
  Placement placement;
  std::vector<GroupShape> groups;
  // In order of forward. The first takes tokens, the last is the loss head; of a pipeline's stages
  // only where they are the first and the last.
  std::vector<UnitShape> units;
  PipelineShape pipeline;
  int tensor = 1;  // tensor-parallel ranks

  [[nodiscard]] bool begins_model() const { return pipeline.stage == 0; }
  [[nodiscard]] bool ends_model() const { return pipeline.stage == pipeline.stages - 1; }
};

// Gradients of a group are summed over the group's whole step in a shard of their own (true), or in
// the rank's slice of the full gradient buffer (false: stages 0 and 1 where a step reduces only
// once).
[[nodiscard]] constexpr bool has_gradient_shard(const StepShape& shape) {
  return shape.stage >= 2 ||
         (shape.reduce_every == ReduceEvery::kMicroBatch && shape.micro_batches > 1);
}

// Each data-parallel rank holds and updates whole groups (stage 0); else one shard of each group.
[[nodiscard]] constexpr bool owns_whole_groups(const StepShape& shape) { return shape.stage == 0; }
// Elements of a group that this rank updates.
[[nodiscard]] constexpr std::int64_t owned_elems(const StepShape& shape, int g) {
  const GroupShape& group = shape.groups[static_cast<std::size_t>(g)];
  return owns_whole_groups(shape) ? group.elems : group.shard_elems;
}
// First element of a group that data-parallel rank `dp_rank` updates.
[[nodiscard]] constexpr std::int64_t owned_begin(const StepShape& shape, int g, int dp_rank) {
  return owns_whole_groups(shape) ? 0
                                  : dp_rank * shape.groups[static_cast<std::size_t>(g)].shard_elems;
}
// Shards of each group that one rank owns.
[[nodiscard]] constexpr int owned_shards(const StepShape& shape) {
  return owns_whole_groups(shape) ? shape.dp : 1;
}
// Of these, the first ones are updated on the device.
[[nodiscard]] std::int64_t device_elems(const StepShape& shape, int g);

// Where a group's shard of parameters lives.
[[nodiscard]] constexpr Tier parameter_tier(const StepShape& shape, int g) {
  return shape.groups[static_cast<std::size_t>(g)].resident ? Tier::kDevice
                                                            : shape.placement.parameters;
}
// Master weights and both moments of one element off the device.
[[nodiscard]] constexpr std::int64_t away_state_bytes(const StepShape& shape) {
  return 4 + 2 * size_of(shape.placement.moments_dtype);
}
// In fp32 the parameters are their own master weights, where both live on one tier.
[[nodiscard]] constexpr bool params_are_master(const StepShape& shape, int g) {
  return !shape.frozen && shape.dtype == DType::kFloat32 &&
         parameter_tier(shape, g) == shape.placement.optimizer;
}

// Bytes of a unit's input, and of what it keeps, that leave the device between forward and
// backward; 0 where they stay: of the first unit, of the last one before the loss head, whose
// backward is next, and of units that can neither recompute nor be parted from what they keep.
[[nodiscard]] std::int64_t leaving_bytes(const StepShape& shape, int unit);

// A group's gradient shards. Where micro-batches are summed, each unit that writes the group has
// one of its own, added up before the norm: the sum is then the same whether all micro-batches of a
// unit run together or all units of a micro-batch.
[[nodiscard]] int gradient_streams(const StepShape& shape, int group);
// Which of them a unit adds to.
[[nodiscard]] int gradient_stream(const StepShape& shape, int unit, int group);

}  // namespace sluice
