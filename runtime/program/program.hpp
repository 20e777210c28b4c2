// A step as data: the operations of one rank, in the order of issue. Pure.
//
// The same value is executed (executor.hpp), measured (memory_model.hpp), checked
// (program_check.hpp) and drawn (program_text.hpp). A step has no second description.
//
// Time: an operation of the compute lane waits for its `waits` and completes as it is issued. An
// operation of another lane is handed to that lane. The lane starts its operations in order of
// issue, each when its own `waits` have completed. Such an operation is known to have completed
// after a compute operation has waited for it, or for an operation that waited for it. The host and
// copy lanes run one operation at a time. The lanes comm, pipe (between pipeline stages) and disk
// may run several at a time.
// Memory: at an operation, in this order,
//   1. (compute lane) its `waits` complete, 2. `dead_before` dies, 3. `live` comes to life,
//   4. it runs and needs `workspace_bytes` besides the live buffers, 5. `dead_after` dies.
// Buffers die only at operations of the compute lane. A buffer that another lane's operation uses
// dies only after that operation is known to have completed.
//
// Tiers: device, host and NVMe each have persistent bytes and slots. Chunks of off-device optimizer
// states pass through a ring of `chunk_slots` slots on the host to be updated. The next program
// that updates finds in the ring the chunks that this program leaves there.
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
  kRelease,          // release a gathered group
  kForward,          // one unit, one micro-batch
  kLossHead,         // the last unit: loss, and in training its gradients
  kBackward,         // one unit, one micro-batch; with `split` the gradient of its input alone
  kBackwardWeights,  // after a split backward: the gradients of the unit's parameters
  kReduceGrads,      // reduce-scatter a bucket of gradients
  kRoundGrads,       // round a group's complete gradients, from their slot (rounds_gradients)
  kAddGrads,      // sum a group's gradient shards, one for each unit that writes it, into the first
  kGatherGrads,   // stage 0: all-gather a bucket of reduced gradients
  kAddReplicas,   // sum a group's reduced gradients over the other ranks that hold the group too
  kMeet,          // a barrier of all ranks of the mesh
  kNormAndScale,  // global gradient norm, clip coefficient, loss over all ranks
  kUpdate,  // optimizer update of a group's shard or of a chunk; `in_backward` also sums squares

  // Between tiers.
  kReadStates,   // a chunk's master weights and moments: disk -> its slot of the ring
  kCopyGrads,    // a chunk's gradients: device -> its slot
  kReadGrads,    // a chunk's gradients: disk -> its slot
  kWriteStates,  // a chunk's new states: its slot -> disk
  kCopyParams,   // a chunk's updated parameters: its slot -> device
  kWriteParams,  // the same: its slot -> disk
  kReadShard,    // a group's parameter shard: disk -> a slot on the host
  kFetchShard,   // the same: host -> its place in the gathered group's slot
  kReadBucket,   // a bucket's gradient shards, for accumulation: disk -> a slot on the host
  kStoreGrads,   // a reduced bucket: device -> gradient shards on the host
  kWriteBucket,  // those shards: host -> disk
  kSumSquares,   // sum the squares of a chunk's gradients, for the norm
  kSaveInput,    // a unit's input: device -> a slot on the host
  kWriteInput,   // host -> disk
  kReadInput,    // disk -> a slot on the host
  kFetchInput,   // host -> device, before the backward that needs it
  kCommit,       // make the image's current places the version that a run can resume from

  // Between pipeline stages; `unit` is this stage's unit that makes or takes the message.
  kSendActivation,     // a chunk's output, to the stage that runs the next unit
  kReceiveActivation,  // a chunk's input
  kSendGradient,       // the gradient of a chunk's input
  kReceiveGradient,    // the gradient of a chunk's output
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::kReceiveGradient) + 1;

// Each kind of message between stages has a wire of its own, first in, first out: [0, kPipeWires).
inline constexpr int kPipeWires = kOpKindCount - static_cast<int>(OpKind::kSendActivation);
[[nodiscard]] constexpr int pipe_wire(OpKind kind) {  // 0 if not a message
  const int wire = static_cast<int>(kind) - static_cast<int>(OpKind::kSendActivation);
  return wire > 0 ? wire : 0;
}
[[nodiscard]] constexpr bool is_send(OpKind kind) {
  return kind == OpKind::kSendActivation || kind == OpKind::kSendGradient;
}

// All ranks of the mesh take part in these operations. No rank leaves before all have arrived.
[[nodiscard]] constexpr bool meets_all(OpKind kind) {
  return kind == OpKind::kMeet || kind == OpKind::kNormAndScale;
}

enum class Lane { kCompute, kComm, kHost, kToHost, kToDevice, kDisk, kPipe };
inline constexpr int kLaneCount = static_cast<int>(Lane::kPipe) + 1;

inline constexpr int kTierCount = 3;

struct Buffer {
  Tag tag = Tag::kActivations;
  std::int64_t bytes = 0;
  std::int64_t small = 0;          // of `bytes`, small blocks (StepShape::small_block); no slot
  bool in_arena = false;           // true: a slot at arena_offset; false: from the allocator
  std::int64_t arena_offset = -1;  // bytes; set by assign_arena
  int group = -1;                  // of parameters and gradients
  Tier tier = Tier::kDevice;       // host buffers lie in the host arena
  int unit = -1;                   // of a unit's input (with micro_batch) or of a cache
  int micro_batch = -1;            // without a unit: the buffer crosses pipeline stages
};

// A run of a group's owned elements (its shard; stage 0: the whole group) that is updated at once.
struct Chunk {
  int group = -1;
  std::int64_t begin = 0;
  std::int64_t elems = 0;
  int slot = 0;             // of the ring; -1: none
  bool speculated = false;  // also has a speculative update
  bool second = false;      // has a second place on NVMe
  bool on_disk = false;     // its states are on NVMe
};

struct Op {
  OpKind kind = OpKind::kForward;
  Lane lane = Lane::kCompute;
  int unit = -1;
  int micro_batch = -1;
  int group = -1;
  int bucket = -1;            // index into Program::buckets
  int chunk = -1;             // index into Program::chunks
  BufferId device_slot = -1;  // device buffer that an asynchronous operation works on
  BufferId host_slot = -1;    // host buffer that an asynchronous operation works on
  bool save = false;          // kForward: keep what backward needs; kLossHead: produce gradients
  bool recompute = false;     // kBackward: run the forward again first
  bool accumulate = false;    // kReduceGrads: add to the shard
  bool split = false;         // kBackward: a kBackwardWeights follows
  bool ahead = false;         // kReadStates: for the update at the start of the next program
  bool speculative = false;   // part of a speculative update of a chunk
  bool in_backward = false;   // kUpdate on the device: runs before the norm, without using it
  std::vector<int> reads{};   // groups whose full parameters it reads
  std::vector<int> writes{};  // groups whose full gradients it writes or adds to
  std::vector<int> opens{};   // groups of `writes` whose gradients are replaced
  std::vector<OpId> waits{};
  std::vector<BufferId> dead_before{};
  std::vector<BufferId> live{};
  std::vector<BufferId> dead_after{};
  std::int64_t workspace_bytes = 0;
  std::int64_t wire_bytes = 0;   // lanes comm and pipe: sent by this rank
  int exchanges = -1;            // index into Program::exchanges: the exchanges inside
  std::int64_t moved_bytes = 0;  // between tiers
  double flops = 0;
};

struct Program {
  std::vector<Op> ops;
  std::vector<Buffer> buffers;
  std::vector<std::vector<BucketPiece>> buckets;
  std::vector<ExchangeList> exchanges;  // distinct lists; operations share them
  std::vector<Chunk> chunks;            // in the order of their updates
  int chunk_slots = 0;
  int chunks_ahead = 0;       // number of first chunks that are in the ring before the program
  bool whole_groups = false;  // stage 0: each rank has all reduced gradients before the norm
  bool in_place = false;      // nothing is reduced (reduces_in_place)
  bool decodes = false;       // write_decode_step: no stage takes targets
  int first_backward = 0;     // in training: the units before it are frozen and have no backward
  // Every update of states on NVMe goes to the place that is not current. A training program
  // commits its deferred updates.
  bool image = false;
  // The rank's persistent state. Empty if another program of the rank lists it.
  StateTable states;
  std::int64_t arena_bytes = 0;       // slots on the device
  std::int64_t host_arena_bytes = 0;  // slots on the host; NVMe has no arena
};

// Whether the program adds reduced gradients on the host. A GPU's gradients pass through the bounce
// buffer.
[[nodiscard]] bool adds_on_host(const Program& program);

// The exchanges inside the operation.
[[nodiscard]] inline std::span<const Exchange> exchanges_of(const Program& program, const Op& op) {
  if (op.exchanges < 0) return {};
  return nth(program.exchanges, op.exchanges);
}
// Bytes that this rank sends in the operation and in the exchanges inside.
[[nodiscard]] inline std::int64_t sent_bytes(const Program& program, const Op& op) {
  return op.wire_bytes + sent_bytes(exchanges_of(program, op));
}

[[nodiscard]] std::string_view name_of(OpKind kind);
[[nodiscard]] std::string_view name_of(Lane lane);

}  // namespace sluice
