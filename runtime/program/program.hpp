// A training step as data: the operations of one rank, in the order they are issued. Pure.
//
// The same value is executed (executor.hpp), added up (memory_model.hpp), checked
// (program_check.hpp) and drawn (program_text.hpp): there is no second description of a step.
//
// Time: operations of the compute lane run to their end as they are issued. Operations of another
// lane are only started; they run in order of issue within their lane, and are known to be over
// where a later operation names them in `waits`. Memory: at an operation, in this order,
//   1. its `waits` are waited for, 2. `dead_before` dies, 3. `live` comes to life,
//   4. it runs, needing `workspace_bytes` above what is live, 5. `dead_after` dies.
// A buffer that an operation of another lane uses dies only at an operation that has waited for it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "zero/partition_plan.hpp"

namespace sluice {

using OpId = int;
using BufferId = int;

enum class OpKind {
  kLoadBatch,     // tokens and targets of a micro-batch
  kGather,        // all-gather a group's parameters
  kRelease,       // let go of a gathered group
  kForward,       // one unit, one micro-batch
  kLossHead,      // the last unit: loss, and in training its gradients
  kBackward,      // one unit, one micro-batch
  kReduceGrads,   // reduce-scatter a bucket of gradients
  kGatherGrads,   // stage 0: all-gather a bucket of reduced gradients
  kNormAndScale,  // global gradient norm, clip coefficient, loss over all ranks
  kUpdate,        // AdamW over a group's shard
};

enum class Lane { kCompute, kComm };

enum class Tag {
  kParameters,
  kGatheredParameters,
  kMaster,
  kMoments,
  kGradients,
  kGradientBuckets,
  kActivations,
  kActivationGradients,
  kLossHead,
  kCommStaging,
  kBatch,
  kWorkspace,
};
inline constexpr int kTagCount = static_cast<int>(Tag::kWorkspace) + 1;

struct Buffer {
  Tag tag = Tag::kActivations;
  std::int64_t bytes = 0;
  bool in_arena = false;           // has a slot at arena_offset; else the allocator's
  std::int64_t arena_offset = -1;  // bytes; set by assign_arena
  int group = -1;                  // of parameters and gradients
};

struct Op {
  OpKind kind = OpKind::kForward;
  Lane lane = Lane::kCompute;
  int unit = -1;
  int micro_batch = -1;
  int group = -1;
  int bucket = -1;         // index into Program::buckets
  bool save = false;       // kForward: keep what backward needs; kLossHead: produce gradients
  bool recompute = false;  // kBackward: run the forward again first
  bool accumulate =
      false;  // kReduceGrads: add to the shard; kBackward, kLossHead: add to the gradients
  std::vector<int> reads{};   // groups whose full parameters it reads
  std::vector<int> writes{};  // groups whose full gradients it writes or adds to
  std::vector<OpId> waits{};
  std::vector<BufferId> dead_before{};
  std::vector<BufferId> live{};
  std::vector<BufferId> dead_after{};
  std::int64_t workspace_bytes = 0;
  std::int64_t wire_bytes = 0;  // sent by this rank
  double flops = 0;
};

// Memory that lives as long as the run.
struct Persistent {
  Tag tag = Tag::kParameters;
  std::int64_t bytes = 0;
};

struct Program {
  std::vector<Op> ops;
  std::vector<Buffer> buffers;
  std::vector<std::vector<BucketPiece>> buckets;
  std::vector<Persistent> persistent;
  std::int64_t arena_bytes = 0;
};

[[nodiscard]] std::string_view name_of(OpKind kind);
[[nodiscard]] std::string_view name_of(Lane lane);
[[nodiscard]] std::string_view name_of(Tag tag);

}  // namespace sluice
