// The input of a program writer: a model, a rank and a configuration, as numbers only.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/parallel_options.hpp"
#include "runtime/program/exchange.hpp"
#include "zero/state_table.hpp"

namespace sluice {

// Device bytes that one unit needs for one micro-batch. unit_profile.hpp (runtime/model) measures
// them by running the unit's own code on the meta device.
struct UnitMemory {
  std::int64_t output = 0;             // boundary activation
  std::int64_t kept = 0;               // kept by forward for backward, besides input and output
  std::int64_t kept_small = 0;         // of `kept`, small blocks (StepShape::small_block)
  std::int64_t forward_peak = 0;       // peak above the state before; includes kept and output
  std::int64_t forward_only_peak = 0;  // the same, with nothing kept
  std::int64_t backward_peak =
      0;  // peak above the state before backward; includes the input gradient
  std::int64_t recompute_peak = 0;  // the same, with the forward run again first
  std::int64_t input_gradient = 0;
  std::int64_t scratch = 0;       // loss head: its working slot in the arena
  std::int64_t cache = 0;         // earlier positions of a sequence that is run in parts
  std::int64_t deferred = 0;      // held between a split backward and its kBackwardWeights
  std::int64_t weights_peak = 0;  // peak above `deferred` during kBackwardWeights
};

struct UnitShape {
  std::vector<int> groups;  // read by the unit; it adds gradients to groups that are not frozen
  bool backward_reads_params = true;
  UnitMemory memory;
  bool kept_moves = false;   // the kept activations can move off-device and back
  double forward_flops = 0;  // one micro-batch
  double weight_flops = 0;   // the gradients of its trained weights
  // FLOP of the forward that the unit's own backward repeats (selective recomputation).
  double recomputed_flops = 0;
  // Bytes of scores that attention by products writes and reads; 0: attention is fused.
  double forward_score_bytes = 0;
  double backward_score_bytes = 0;
  UnitExchanges exchanges{};  // with tensor-parallel ranks
};

// The rank's place in the pipeline. Its units are the units of its chunks, in order. Chunk c is
// virtual stage c * stages + stage of stages * virtual_stages.
struct PipelineShape {
  int stages = 1;
  int stage = 0;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  std::vector<int> chunk_ends;      // by chunk: one past its last unit; empty without a pipeline
  std::int64_t message_bytes = 0;   // an activation between two stages, one micro-batch
  std::int64_t boundary_bytes = 0;  // what its tensor takes of the device

  [[nodiscard]] int virtual_stages() const {
    return chunk_ends.empty() ? 1 : static_cast<int>(chunk_ends.size());
  }
};

struct StepShape : ShardShape {
  bool recompute = false;
  bool layer_major = false;  // each unit runs all micro-batches before the next unit runs
  std::int64_t bucket_bytes = 0;
  DType reduce_dtype = DType::kFloat32;  // ZeroOptions::reduce_dtype
  int prefetch_units = 1;
  std::int64_t batch_bytes = 0;         // tokens and targets of a micro-batch
  std::int64_t comm_staging_bytes = 0;  // of the largest bucket
  // Staging of gradients that are summed over replicas.
  std::int64_t replica_staging_bytes = 0;
  std::int64_t constant_bytes = 0;  // tables that the units share, besides the parameters
  bool on_gpu = false;              // the units run there
  // A GPU's allocator takes blocks up to this many bytes from segments for them alone. 0 elsewhere.
  std::int64_t small_block = 0;
  // Workspaces of libraries, held from the first product on; buffers of batches for graphs; gaps
  // between tensors of a pipeline's micro-batches.
  std::int64_t library_bytes = 0;
  std::int64_t passing_gap_bytes = 0;  // room between activations and passing gradients
  // No norm clips the step: a group whose gradients pass is updated in the backward, as soon as
  // they are complete. Replicas are added before the norm, so their groups wait for it.
  bool updates_in_backward = false;
  // The bounce buffer through which the host adds gradients of a device with its own memory; 0: the
  // device is the host.
  std::int64_t bounce_bytes = 0;
  StoreShape store;
  // The rank's share of memory.host, in bytes; 0: no limit. Speculative updates of states on the
  // host take what the rest of the step leaves of it.
  std::int64_t host_budget_bytes = 0;
  std::int64_t other_arena_bytes = 0;  // device arena bytes that the rank's other programs need
  // In the order of forward. The model's first unit takes tokens and its last unit is the loss
  // head. Only the first and the last pipeline stage hold these two.
  std::vector<UnitShape> units;
  PipelineShape pipeline;
  int tensor = 1;  // tensor-parallel ranks
  // Largest number of groups on any pipeline stage, because the norm's exchange has the same length
  // on all ranks. 0: the number of `groups`.
  int most_groups = 0;

  [[nodiscard]] int world() const { return dp * tensor * pipeline.stages; }
  [[nodiscard]] bool begins_model() const { return pipeline.stage == 0; }
  [[nodiscard]] bool ends_model() const { return pipeline.stage == pipeline.stages - 1; }
};

// Bytes of a unit's input and kept activations that move off-device between forward and backward.
// 0 for the first unit, the loss head, the unit before the loss head (its backward is next, except
// with gpipe), units without a backward, and units whose kept activations cannot move.
[[nodiscard]] std::int64_t leaving_bytes(const StepShape& shape, int unit);

// `bytes` if a tensor of so many bytes is a small block, else 0.
[[nodiscard]] inline std::int64_t small_bytes(const StepShape& shape, std::int64_t bytes) {
  return bytes <= shape.small_block ? bytes : 0;
}

// Whether the unit has a backward: the unit or a unit before it has a trained group. Every unit of
// a pipeline has a backward, because other stages may have trained groups.
[[nodiscard]] bool has_backward(const StepShape& shape, int unit);

// The number of a group's gradient streams (shards). If shards sum micro-batches, each unit that
// writes the group has its own stream, and the streams are added before the norm. The sum is then
// bit-identical in layer-major order and in micro-batch order.
[[nodiscard]] int gradient_streams(const StepShape& shape, int group);
// The dtype in which ranks send gradients to their reduction. A rank alone sends none.
[[nodiscard]] inline DType sent_dtype(const StepShape& shape) {
  return shape.dp > 1 ? shape.reduce_dtype : DType::kFloat32;
}
// Bytes of `elems` elements of one of the group's gradient streams, in the dtype of its shards.
[[nodiscard]] inline std::int64_t gradient_bytes(const StepShape& shape, int group,
                                                 std::int64_t elems) {
  return elems * size_of(gradient_dtype(shape, group));
}
// The stream that a unit adds to.
[[nodiscard]] int gradient_stream(const StepShape& shape, int unit, int group);

}  // namespace sluice
