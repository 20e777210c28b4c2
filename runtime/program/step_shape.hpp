// What a program writer must know of a model, a rank and a configuration: integers only.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/dtype.hpp"
#include "zero/zero_options.hpp"

namespace sluice {

struct GroupShape {
  std::int64_t elems = 0;  // with padding
  std::int64_t shard_elems = 0;
  bool resident = true;  // its full parameters stay in memory between uses
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
  std::int64_t scratch = 0;  // loss head: a slot of the arena it works in
};

struct UnitShape {
  std::vector<int> groups;  // whose parameters it reads, and adds gradients to
  bool backward_reads_params = true;
  UnitMemory memory;
  double forward_flops = 0;  // one micro-batch
};

struct StepShape {
  int stage = 0;
  int dp = 1;
  int micro_batches = 1;
  bool recompute = false;
  DType dtype = DType::kFloat32;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
  std::int64_t bucket_bytes = 0;
  int prefetch_units = 1;
  std::int64_t batch_bytes = 0;         // tokens and targets of a micro-batch
  std::int64_t comm_staging_bytes = 0;  // of the largest bucket
  std::int64_t constant_bytes = 0;      // tables the units share, beside the parameters
  std::vector<GroupShape> groups;
  std::vector<UnitShape> units;  // in order of forward; the last is the loss head
};

// Gradients of a group are summed over the group's whole step in a shard of their own (true), or in
// the rank's slice of the full gradient buffer (false: stages 0 and 1 where a step reduces only
// once).
[[nodiscard]] constexpr bool has_gradient_shard(const StepShape& shape) {
  return shape.stage >= 2 ||
         (shape.reduce_every == ReduceEvery::kMicroBatch && shape.micro_batches > 1);
}

}  // namespace sluice
