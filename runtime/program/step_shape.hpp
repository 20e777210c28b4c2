// What a program writer must know of a model, a rank and a configuration: integers only.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/parallel_options.hpp"
#include "runtime/program/exchange.hpp"
#include "zero/state_table.hpp"

namespace sluice {

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
  std::vector<int> groups;  // whose parameters it reads, and adds gradients to unless frozen
  bool backward_reads_params = true;
  UnitMemory memory;
  bool kept_moves = false;   // what forward keeps can be taken away and brought back
  double forward_flops = 0;  // one micro-batch
  double weight_flops = 0;   // the gradients of its trained weights
  // Of these, what the unit's backward itself runs again (selective recomputation).
  double recomputed_flops = 0;
  UnitExchanges exchanges{};  // with tensor-parallel ranks
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

struct StepShape : ShardShape {
  bool recompute = false;
  bool layer_major = false;  // each unit runs all micro-batches before the next unit runs
  std::int64_t bucket_bytes = 0;
  int prefetch_units = 1;
  std::int64_t batch_bytes = 0;         // tokens and targets of a micro-batch
  std::int64_t comm_staging_bytes = 0;  // of the largest bucket
  // Of gradients that are added up over replicas.
  std::int64_t replica_staging_bytes = 0;
  std::int64_t constant_bytes = 0;  // tables the units share, beside the parameters
  std::int64_t library_bytes = 0;   // workspaces of libraries, held from the first product on
  // Through which the host adds gradients of a device with memory of its own; 0: the device is the
  // host.
  std::int64_t bounce_bytes = 0;
  StoreShape store;
  std::int64_t other_arena_bytes = 0;  // of the device's arena: what programs beside this one need
  // In order of forward. The first takes tokens, the last is the loss head; of a pipeline's stages
  // only where they are the first and the last.
  std::vector<UnitShape> units;
  PipelineShape pipeline;
  int tensor = 1;  // tensor-parallel ranks
  // Of the pipeline stage that has most groups: the norm's exchange is as long on all ranks. 0: as
  // many as `groups`.
  int most_groups = 0;

  [[nodiscard]] int world() const { return dp * tensor * pipeline.stages; }
  [[nodiscard]] bool begins_model() const { return pipeline.stage == 0; }
  [[nodiscard]] bool ends_model() const { return pipeline.stage == pipeline.stages - 1; }
};

// Bytes of a unit's input, and of what it keeps, that leave the device between forward and
// backward; 0 where they stay: of the first unit, of the last one before the loss head, whose
// backward is next, and of units that can neither recompute nor be parted from what they keep.
[[nodiscard]] std::int64_t leaving_bytes(const StepShape& shape, int unit);

// Whether the unit has a backward: it or a unit before it has a group that is trained. Every unit
// of a pipeline has one, because other stages may have trained groups.
[[nodiscard]] bool has_backward(const StepShape& shape, int unit);

// A group's gradient shards. Where micro-batches are summed, each unit that writes the group has
// one of its own, added up before the norm: the sum is then the same whether all micro-batches of a
// unit run together or all units of a micro-batch.
[[nodiscard]] int gradient_streams(const StepShape& shape, int group);
// Which of them a unit adds to.
[[nodiscard]] int gradient_stream(const StepShape& shape, int unit, int group);

}  // namespace sluice
