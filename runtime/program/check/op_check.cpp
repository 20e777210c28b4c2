#include "runtime/program/check/op_check.hpp"

#include <algorithm>
#include <vector>

#include "base/index.hpp"

namespace sluice {
namespace {

Lane lane_of(const Op& op) {
  switch (op.kind) {
    case OpKind::kGather:  // of a rank alone: on the compute lane if it rounds master weights
      return op.wire_bytes == 0 && op.device_slot >= 0 && op.lane == Lane::kCompute ? Lane::kCompute
                                                                                    : Lane::kComm;
    case OpKind::kReduceGrads:
    case OpKind::kGatherGrads:
      return Lane::kComm;
    case OpKind::kUpdate:
      return op.chunk >= 0 ? Lane::kHost : Lane::kCompute;
    case OpKind::kSumSquares:
      return Lane::kHost;
    case OpKind::kCopyGrads:
    case OpKind::kStoreGrads:
    case OpKind::kSaveInput:
      return Lane::kToHost;
    case OpKind::kCopyParams:
    case OpKind::kFetchShard:
    case OpKind::kFetchInput:
      return Lane::kToDevice;
    case OpKind::kReadStates:
    case OpKind::kReadGrads:
    case OpKind::kWriteStates:
    case OpKind::kWriteParams:
    case OpKind::kReadShard:
    case OpKind::kReadBucket:
    case OpKind::kWriteBucket:
    case OpKind::kWriteInput:
    case OpKind::kReadInput:
    case OpKind::kCommit:
      return Lane::kDisk;
    case OpKind::kSendActivation:
    case OpKind::kReceiveActivation:
    case OpKind::kSendGradient:
    case OpKind::kReceiveGradient:
      return Lane::kPipe;
    default:
      return Lane::kCompute;
  }
}

bool needs_bucket(OpKind kind) {
  return kind == OpKind::kReduceGrads || kind == OpKind::kGatherGrads ||
         kind == OpKind::kReadBucket || kind == OpKind::kStoreGrads || kind == OpKind::kWriteBucket;
}

bool needs_chunk(OpKind kind) {
  return kind == OpKind::kReadStates || kind == OpKind::kCopyGrads || kind == OpKind::kReadGrads ||
         kind == OpKind::kWriteStates || kind == OpKind::kCopyParams ||
         kind == OpKind::kWriteParams || kind == OpKind::kSumSquares;
}

// Whether the operation's buffer crosses to another stage and is no unit's input on this stage.
bool crosses(const Program& program, const Op& op, Tag tag) {
  if (op.device_slot < 0 || op.host_slot >= 0) return false;
  const Buffer& buffer = nth(program.buffers, op.device_slot);
  return buffer.tag == tag && buffer.unit < 0 && buffer.micro_batch == op.micro_batch;
}

// Bytes of an element of the group's gradient shards on the tier.
std::int64_t shard_element_bytes(const Program& program, int group, Tier tier) {
  const StateRow* const row = program.states.find(group, StateArray::kGradientShard, tier);
  return row == nullptr ? 4 : row->element_bytes;
}

// Whether the host adds to shards that hold rounded gradients.
bool adds_to_rounded(const Program& program, const Op& op) {
  if (op.kind != OpKind::kStoreGrads || !op.accumulate) return false;
  const std::vector<BucketPiece>& pieces = nth(program.buckets, op.bucket);
  return std::any_of(pieces.begin(), pieces.end(), [&](const BucketPiece& piece) {
    return shard_element_bytes(program, piece.group, Tier::kHost) < 4 ||
           shard_element_bytes(program, piece.group, Tier::kNvme) < 4;
  });
}

// Whether an operation's slots have the right kind, group or input, and size. Reduced gradients are
// fp32 on the device; on the host they have the dtype of their shards on NVMe.
bool slots_fit(const Program& program, const Op& op) {
  const auto is = [&](BufferId b, Tag tag) {
    if (b < 0) return true;
    const Buffer& buffer = nth(program.buffers, b);
    const bool input = tag == Tag::kActivations;
    std::int64_t least = 0;
    if (tag == Tag::kGradientStaging) {
      for (const BucketPiece& piece : nth(program.buckets, op.bucket)) {
        const bool on_device = buffer.tier == Tier::kDevice;
        least +=
            piece.elems * (on_device ? 4 : shard_element_bytes(program, piece.group, Tier::kNvme));
      }
    }
    return buffer.tag == tag && (tag == Tag::kGradientStaging || buffer.group == op.group) &&
           (!input || (buffer.unit == op.unit && buffer.micro_batch == op.micro_batch)) &&
           buffer.bytes >= least;
  };
  switch (op.kind) {
    case OpKind::kGather:
    case OpKind::kReadShard:
    case OpKind::kFetchShard:
      return is(op.device_slot, Tag::kGatheredParameters) &&
             is(op.host_slot, Tag::kParameterStaging);
    case OpKind::kReduceGrads:
    case OpKind::kReadBucket:
    case OpKind::kStoreGrads:
    case OpKind::kWriteBucket:
      return is(op.device_slot, Tag::kGradientStaging) && is(op.host_slot, Tag::kGradientStaging);
    case OpKind::kSaveInput:
    case OpKind::kWriteInput:
    case OpKind::kReadInput:
    case OpKind::kFetchInput:
      return is(op.device_slot, Tag::kActivations) && is(op.host_slot, Tag::kActivations);
    case OpKind::kReceiveActivation:
      return op.device_slot >= 0 && is(op.device_slot, Tag::kActivations) && op.host_slot < 0;
    case OpKind::kSendActivation:
      return crosses(program, op, Tag::kActivations);
    case OpKind::kSendGradient:
    case OpKind::kReceiveGradient:
      return crosses(program, op, Tag::kActivationGradients);
    default:
      return op.device_slot < 0 && op.host_slot < 0;
  }
}

// Whether the operation may have exchanges with the ranks of its list.
bool exchanges_fit(const Program& program, const Op& op) {
  const std::span<const Exchange> list = exchanges_of(program, op);
  return std::all_of(list.begin(), list.end(), [&](const Exchange& exchange) {
    if (exchange.ranks == ExchangeRanks::kWorld) return meets_all(op.kind);
    if (op.kind == OpKind::kAddReplicas) return true;
    return op.unit >= 0 && op.lane == Lane::kCompute && exchange.ranks == ExchangeRanks::kTensor;
  });
}

}  // namespace

std::string find_op_fault(const Program& program, std::size_t i) {
  const Op& op = program.ops[i];
  const auto known = [&](const std::vector<BufferId>& ids) {
    return std::all_of(ids.begin(), ids.end(), [&](BufferId b) {
      return b >= 0 && static_cast<std::size_t>(b) < program.buffers.size();
    });
  };
  const auto on = [&](BufferId b, Tier tier) {
    return b < 0 || (static_cast<std::size_t>(b) < program.buffers.size() &&
                     nth(program.buffers, b).tier == tier);
  };
  const auto chunks = static_cast<int>(program.chunks.size());
  if (op.exchanges >= static_cast<int>(program.exchanges.size())) {
    return "has exchanges that are not there";
  }
  if (!exchanges_fit(program, op)) return "exchanges with ranks that it does not speak to";
  if (!known(op.dead_before) || !known(op.live) || !known(op.dead_after) ||
      !on(op.device_slot, Tier::kDevice) || !on(op.host_slot, Tier::kHost) ||
      op.bucket >= static_cast<int>(program.buckets.size()) || op.chunk >= chunks) {
    return "names a buffer, a bucket or a chunk that is not there";
  }
  if ((needs_bucket(op.kind) && op.bucket < 0) || (needs_chunk(op.kind) && op.chunk < 0) ||
      (op.kind == OpKind::kRoundGrads && op.group < 0)) {
    return "has nothing to work on";
  }
  if (op.chunk >= 0 && nth(program.chunks, op.chunk).group != op.group) {
    return "is of another group than its chunk";
  }
  if (op.ahead && op.kind != OpKind::kReadStates) {
    return "is marked `ahead`, but only ReadStates can be";
  }
  if (op.in_backward && (op.kind != OpKind::kUpdate || op.chunk >= 0)) {
    return "updates nothing in the backward";
  }
  const bool speculated = op.chunk >= 0 && nth(program.chunks, op.chunk).speculated;
  if (op.kind == OpKind::kCommit && !program.image) {
    return "commits, but the program has no image";
  }
  if (op.kind == OpKind::kMeet && !program.image) {
    return "is a Meet, but the program has no image";
  }
  if (op.speculative && (op.ahead || !speculated)) {
    return "is speculative, but its chunk is not, or it runs ahead";
  }
  if (!slots_fit(program, op)) return "uses a slot of the wrong tag or group";
  if (adds_to_rounded(program, op)) return "adds to gradients that were rounded";
  if (op.lane != lane_of(op)) return "is on the wrong lane";
  if (op.lane == Lane::kPipe && !op.waits.empty()) {
    return "is on the pipe lane and has waits; pipe operations start at once";
  }
  if (op.split && (op.kind != OpKind::kBackward || !op.writes.empty())) {
    return "is split, but writes weight gradients";
  }
  for (const OpId w : op.waits) {
    if (w < 0 || static_cast<std::size_t>(w) >= i) return "waits for what has not been issued";
  }
  return "";
}

}  // namespace sluice
