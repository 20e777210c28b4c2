// A training step as data: the operations of one rank, in the order they are issued. Pure.
//
// The same value is executed (executor.hpp), added up (memory_model.hpp), checked
// (program_check.hpp) and drawn (program_text.hpp): there is no second description of a step.
//
// Time: operations of the compute lane wait for their `waits` and run to their end as they are
// issued. Operations of another lane are only handed to it there: the lane starts them in order of
// issue, each when its own `waits` are over; they are known to be over where an operation of the
// compute lane has waited for them, or for something that waited for them. Lanes of the host and of
// copies run one operation at a time; the wire, the pipe (between pipeline stages) and the disk may
// have several under way.
// Memory: at an operation, in this order,
//   1. (compute lane) its `waits` are waited for, 2. `dead_before` dies, 3. `live` comes to life,
//   4. it runs, needing `workspace_bytes` above what is live, 5. `dead_after` dies.
// Buffers die at operations of the compute lane alone; one that another lane's operation uses, only
// once that is known to be over.
//
// Tiers: device, host and NVMe each have persistent bytes and slots. The chunks in which optimizer
// states are brought to the host to be updated pass through a ring of `chunk_slots` slots. What a
// program leaves in the ring, the next one that updates finds there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/index.hpp"
#include "offload/offload_options.hpp"
#include "runtime/program/exchange.hpp"
#include "zero/memory_tag.hpp"
#include "zero/partition_plan.hpp"
#include "zero/state_table.hpp"

namespace sluice {

using OpId = int;
using BufferId = int;

enum class OpKind {
  kLoadBatch,        // tokens and targets of a micro-batch
  kGather,           // all-gather a group's parameters
  kRelease,          // let go of a gathered group
  kForward,          // one unit, one micro-batch
  kLossHead,         // the last unit: loss, and in training its gradients
  kBackward,         // one unit, one micro-batch; with `split` the gradient of its input alone
  kBackwardWeights,  // what a split backward left: the gradients of the unit's parameters
  kReduceGrads,      // reduce-scatter a bucket of gradients
  kAddGrads,      // sum a group's gradient shards, one for each unit that writes it, into the first
  kGatherGrads,   // stage 0: all-gather a bucket of reduced gradients
  kAddReplicas,   // sum a group's reduced gradients over the other ranks that hold the group too
  kMeet,          // a barrier of all ranks of the mesh
  kNormAndScale,  // global gradient norm, clip coefficient, loss over all ranks
  kUpdate,        // the optimizer's, of a group's shard, or over a chunk of it

  // Between tiers.
  kReadStates,   // a chunk's master weights and moments: disk -> its slot of the ring
  kCopyGrads,    // a chunk's gradients: device -> its slot
  kReadGrads,    // a chunk's gradients: disk -> its slot
  kWriteStates,  // back to the disk
  kCopyParams,   // a chunk's updated parameters: its slot -> device
  kWriteParams,  // the same: its slot -> disk
  kReadShard,    // a group's parameter shard: disk -> a slot on the host
  kFetchShard,   // the same: host -> its place in the gathered group's slot
  kReadBucket,   // gradient shards of a bucket, to add to: disk -> a slot on the host
  kStoreGrads,   // a reduced bucket: device -> gradient shards on the host
  kWriteBucket,  // those shards: host -> disk
  kSumSquares,   // of a chunk's gradients, for the norm
  kSaveInput,    // a unit's input: device -> a slot on the host
  kWriteInput,   // host -> disk
  kReadInput,    // disk -> a slot on the host
  kFetchInput,   // host -> device, before the backward that needs it
  kCommit,       // the states on NVMe, as they are now, are what a run can go on from

  // Between pipeline stages; `unit` is the one of this stage that made it, or will take it.
  kSendActivation,     // a chunk's output, to the stage that runs the next unit
  kReceiveActivation,  // a chunk's input
  kSendGradient,       // the gradient of a chunk's input
  kReceiveGradient,    // of its output
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::kReceiveGradient) + 1;

// Each kind of message between stages has a wire of its own, first in, first out: [0, kPipeWires).
inline constexpr int kPipeWires = kOpKindCount - static_cast<int>(OpKind::kSendActivation);
[[nodiscard]] constexpr int pipe_wire(OpKind kind) {  // 0 of what is no message
  const int wire = static_cast<int>(kind) - static_cast<int>(OpKind::kSendActivation);
  return wire > 0 ? wire : 0;
}
[[nodiscard]] constexpr bool is_send(OpKind kind) {
  return kind == OpKind::kSendActivation || kind == OpKind::kSendGradient;
}

// All ranks of the mesh take part in these: none leaves one before all have come to it.
[[nodiscard]] constexpr bool meets_all(OpKind kind) {
  return kind == OpKind::kMeet || kind == OpKind::kNormAndScale;
}

enum class Lane { kCompute, kComm, kHost, kToHost, kToDevice, kDisk, kPipe };
inline constexpr int kLaneCount = static_cast<int>(Lane::kPipe) + 1;

inline constexpr int kTierCount = 3;

struct Buffer {
  Tag tag = Tag::kActivations;
  std::int64_t bytes = 0;
  bool in_arena = false;           // has a slot at arena_offset; else the allocator's
  std::int64_t arena_offset = -1;  // bytes; set by assign_arena
  int group = -1;                  // of parameters and gradients
  Tier tier = Tier::kDevice;       // host: in its arena
  int unit = -1;                   // of a unit's input: whose, and of which micro-batch; of a cache
  int micro_batch = -1;            // without a unit: of what is sent to another stage
};

// A run of a group's owned elements (its shard; stage 0: the whole group) that is updated at once.
struct Chunk {
  int group = -1;
  std::int64_t begin = 0;
  std::int64_t elems = 0;
  int slot = 0;             // of the ring
  bool speculated = false;  // updated before the norm is known as well
  bool second = false;      // has a second place on NVMe
};

struct Op {
  OpKind kind = OpKind::kForward;
  Lane lane = Lane::kCompute;
  int unit = -1;
  int micro_batch = -1;
  int group = -1;
  int bucket = -1;            // index into Program::buckets
  int chunk = -1;             // index into Program::chunks
  BufferId device_slot = -1;  // what an asynchronous operation works on, where that comes and
  BufferId host_slot = -1;    //   goes: on the device, on the host
  bool save = false;          // kForward: keep what backward needs; kLossHead: produce gradients
  bool recompute = false;     // kBackward: run the forward again first
  bool accumulate = false;    // kReduceGrads: add to the shard
  bool split = false;         // kBackward: a kBackwardWeights follows
  bool ahead = false;         // kReadStates: for the update at the start of the next program
  bool speculative = false;   // of a chunk: for this step's update, as if it were not clipped
  std::vector<int> reads{};   // groups whose full parameters it reads
  std::vector<int> writes{};  // groups whose full gradients it writes or adds to
  std::vector<int> opens{};   // of those, the ones whose content is to be replaced
  std::vector<OpId> waits{};
  std::vector<BufferId> dead_before{};
  std::vector<BufferId> live{};
  std::vector<BufferId> dead_after{};
  std::int64_t workspace_bytes = 0;
  std::int64_t wire_bytes = 0;   // lanes comm and pipe: sent by this rank
  int exchanges = -1;            // index into Program::exchanges: with other ranks, while it runs
  std::int64_t moved_bytes = 0;  // between tiers
  double flops = 0;
};

struct Program {
  std::vector<Op> ops;
  std::vector<Buffer> buffers;
  std::vector<std::vector<BucketPiece>> buckets;
  std::vector<ExchangeList> exchanges;  // each once, however many operations have it
  std::vector<Chunk> chunks;            // in the order of their updates
  int chunk_slots = 0;
  int chunks_ahead = 0;    // of the chunks, so many are in the ring before the program: the first
  int first_backward = 0;  // in training: the units before it are frozen and have no backward
  // Every update of states on NVMe goes to the place that is not current, and a program that trains
  // commits the updates it begins with.
  bool image = false;
  // What lives as long as the run. Empty where another program of the rank says it.
  StateTable states;
  std::int64_t arena_bytes = 0;       // slots on the device
  std::int64_t host_arena_bytes = 0;  // and on the host; NVMe has none that come and go
};

// Whether the program has the host add reduced gradients to others. Those of a GPU pass through the
// bounce buffer.
[[nodiscard]] bool adds_on_host(const Program& program);

// The exchanges that are a part of the operation.
[[nodiscard]] inline std::span<const Exchange> exchanges_of(const Program& program, const Op& op) {
  if (op.exchanges < 0) return {};
  return nth(program.exchanges, op.exchanges);
}
// Bytes that this rank sends, as the operation and in exchanges inside it.
[[nodiscard]] inline std::int64_t sent_bytes(const Program& program, const Op& op) {
  return op.wire_bytes + sent_bytes(exchanges_of(program, op));
}

[[nodiscard]] std::string_view name_of(OpKind kind);
[[nodiscard]] std::string_view name_of(Lane lane);

}  // namespace sluice
