#include "runtime/program/tier_check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/program/ring_check.hpp"
#include "runtime/program/speculation_check.hpp"
#include "runtime/program/touches.hpp"

namespace sluice {
namespace {

struct ChunkState {
  std::vector<OpId> arrivals;
  OpId update = -1;
  OpId summing = -1;  // its gradients' way into the ring for the norm
  OpId summed = -1;
  bool written = false;  // its states, back to the disk
  bool ahead = false;    // and into the ring again, for the next program
};

// Of a group's chunks, how many have been issued.
struct GroupState {
  int chunks = 0;
  int updates = 0;
  int copies = 0;
  int param_writes = 0;
  int state_writes = 0;
  bool written = false;  // its gradients, in this program
  bool to_disk = false;  // its gradients
  int streams = 1;
};

class TierChecker {
 public:
  TierChecker(const Program& program, const OpOrder& order)
      : program_(program),
        order_(order),
        ring_(program, order),
        early_(program, order),
        chunks_(program.chunks.size()) {
    int loads = 0;
    bool headed = false;
    for (const Op& op : program.ops) {
      trains_ = trains_ || op.kind == OpKind::kBackward;
      updates_ = updates_ || op.kind == OpKind::kBackward || is_chunk_update(op);
      headed = headed || op.kind == OpKind::kLossHead;
      loads += op.kind == OpKind::kLoadBatch && !headed ? 1 : 0;
      if (op.kind == OpKind::kGather) gathered_.insert(op.group);
      fed_ = fed_ || (op.kind == OpKind::kReceiveActivation && op.unit == 0);
      if (op.kind == OpKind::kFetchShard) fetched_.insert(op.group);
      if (op.kind == OpKind::kReadShard) on_disk_.insert(op.group);
      if (op.kind == OpKind::kWriteParams) written_apart_.insert(op.group);
    }
    const bool staged = std::any_of(program.ops.begin(), program.ops.end(),
                                    [](const Op& op) { return op.lane == Lane::kPipe; });
    // The second batch comes before the first one's loss.
    many_inputs_ = staged || loads > 1;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.tag == Tag::kGradientBuckets) grad_slots_.insert(buffer.group);
    }
    for (const Chunk& chunk : program.chunks) ++groups_[chunk.group].chunks;
    for (const auto& bucket : program.buckets) {
      for (const BucketPiece& piece : bucket) {
        GroupState& group = groups_[piece.group];
        group.streams = std::max(group.streams, piece.stream + 1);
      }
    }
  }

  std::string run() {
    for (std::size_t i = 0; i < program_.ops.size() && fault_.empty(); ++i) step(i);
    for (const ChunkState& chunk : chunks_) {
      if (!updates_ || !fault_.empty()) break;
      if (chunk.update < 0) fault_ = "a chunk is never updated";
      if (ring_.states_on_disk() && !chunk.written) fault_ = "a chunk never goes back";
    }
    if (trains_ && fault_.empty()) fault_ = ring_.fault_at_end();
    return trains_ && fault_.empty() ? early_.fault_at_end() : fault_;
  }

 private:
  static bool is_chunk_update(const Op& op) { return op.kind == OpKind::kUpdate && op.chunk >= 0; }

  void fail(const std::string& what) {
    if (what.empty() || !fault_.empty()) return;
    fault_ = name_in_fault(program_, static_cast<std::size_t>(now_)) + what;
  }
  void need(OpId op, const char* what) {
    if (!order_.over(op, now_)) fail(what + (" operation " + std::to_string(op)));
  }

  void step(std::size_t i) {
    const Op& op = program_.ops[i];
    now_ = static_cast<OpId>(i);
    if (op.lane != Lane::kCompute && !(op.dead_before.empty() && op.dead_after.empty())) {
      fail("frees memory, which is for the compute lane");
    }
    for (const BufferId b : op.dead_before) forget(b);
    if (op.chunk >= 0) {
      move_chunk(op);
    } else if (op.lane == Lane::kCompute) {
      compute(op);
    } else {
      move(op);
    }
    for (const BufferId b : op.dead_after) forget(b);
  }

  // --- who may touch what ---

  void touch(Place place, bool write, std::int64_t begin = 0, std::int64_t end = kAllElems) {
    fail(touches_.touch(now_, place, write, begin, end));
  }
  void forget(BufferId b) {
    fail(touches_.forget(now_, b));
    std::erase_if(inputs_, [b](const auto& input) { return input.second == b; });
  }
  void fill(BufferId slot, Content content) { fail(touches_.fill(now_, slot, content)); }
  void take(BufferId slot, Content content) { fail(touches_.take(now_, slot, content)); }

  void keep_taken(int g) {
    if (early_.taken(g)) fail("changes gradients that were taken to be whole");
  }
  // All of a group's gradients, wherever its streams are.
  void touch_grads(int g, bool write) {
    if (write) keep_taken(g);
    for (int s = 0; s < groups_[g].streams; ++s) touch({Space::kGrads, g, s}, write);
  }
  void touch_pieces(int bucket, bool write) {
    for (const BucketPiece& piece : program_.buckets[static_cast<std::size_t>(bucket)]) {
      touch({Space::kGrads, piece.group, piece.stream}, write, piece.begin,
            piece.begin + piece.elems);
      if (!write) continue;
      keep_taken(piece.group);
      groups_[piece.group].written = true;
      for (const int c : chunks_of(piece.group)) chunks_[static_cast<std::size_t>(c)].summed = -1;
    }
  }

  const std::vector<int>& chunks_of(int g) {
    if (by_group_.empty()) {
      for (std::size_t c = 0; c < program_.chunks.size(); ++c) {
        by_group_[program_.chunks[c].group].push_back(static_cast<int>(c));
      }
    }
    return by_group_[g];
  }

  // Where a program updates, what it reads is updated, and has got to where it is read.
  void read_params(int g, bool from_disk, bool on_host) {
    touch({Space::kParams, g, 0}, false);
    const GroupState& group = groups_[g];
    if (!updates_ || group.chunks == 0) return;
    const int there = on_host                       ? group.updates
                      : !from_disk                  ? group.copies
                      : written_apart_.count(g) > 0 ? group.param_writes
                                                    : group.state_writes;
    if (group.updates < group.chunks || there < group.chunks) {
      fail("reads parameters of group " + std::to_string(g) + " before they are updated");
    }
  }

  // --- chunks ---

  const Chunk& chunk_of(const Op& op) const {
    return program_.chunks[static_cast<std::size_t>(op.chunk)];
  }

  void move_chunk(const Op& op) {
    ChunkState& chunk = chunks_[static_cast<std::size_t>(op.chunk)];
    GroupState& group = groups_[op.group];
    const Chunk& run = chunk_of(op);
    const bool sums =
        op.kind == OpKind::kSumSquares || (op.kind == OpKind::kReadGrads && chunk.update >= 0);
    if (const std::string fault = ring_.enter(now_, sums); !fault.empty()) return fail(fault);
    if (op.kind == OpKind::kReadStates || op.kind == OpKind::kWriteStates) {
      const bool writes = op.kind == OpKind::kWriteStates;
      touch({op.speculative && writes ? Space::kSecondStates : Space::kStates, op.group, 0}, writes,
            run.begin, run.begin + run.elems);
    }
    if (op.ahead) return come_ahead(op, chunk);
    if (op.speculative) return come_early(op, chunk);
    switch (op.kind) {
      case OpKind::kReadStates:
      case OpKind::kCopyGrads:
      case OpKind::kReadGrads:
        return arrive(op, chunk, group, sums);
      case OpKind::kUpdate:
        update_chunk(chunk, group);
        touch({Space::kParams, op.group, 0}, true, run.begin, run.begin + run.elems);
        return;
      case OpKind::kSumSquares:
        if (chunk.summing < 0) return fail("has no gradients");
        need(chunk.summing, "sums what is brought by");
        chunk.summed = now_;
        return;
      default:
        depart(op, chunk, group);
        if (op.kind != OpKind::kWriteStates || states_are_params(op.group)) {
          touch({Space::kParams, op.group, 0}, true, run.begin, run.begin + run.elems);
        }
    }
  }

  void come_ahead(const Op& op, ChunkState& chunk) {
    if (op.chunk >= program_.chunks_ahead) return fail("is not awaited by the next step");
    if (!chunk.written) return fail("comes before its chunk has gone back");
    if (std::exchange(chunk.ahead, true)) fail("comes twice");
  }

  void come_early(const Op& op, ChunkState& chunk) {
    const Chunk& run = chunk_of(op);
    const bool brings = op.kind == OpKind::kCopyGrads || op.kind == OpKind::kReadGrads;
    const bool in_place = !ring_.grads_from_disk() && !ring_.grads_from_device();
    if (brings || (op.kind == OpKind::kUpdate && in_place)) touch_grads(op.group, false);
    if (op.kind == OpKind::kSumSquares) chunk.summed = now_;
    if (op.kind == OpKind::kWriteParams) {
      touch({Space::kSecondParams, op.group, 0}, true, run.begin, run.begin + run.elems);
    }
    if (const std::string fault = early_.enter(now_, chunk.written); !fault.empty()) fail(fault);
  }

  void arrive(const Op& op, ChunkState& chunk, const GroupState& group, bool sums) {
    if (op.kind != OpKind::kReadStates) touch_grads(op.group, false);
    if (sums) {
      chunk.summing = now_;
      return;
    }
    if (chunk.update >= 0) fail("brings a chunk that was updated");
    if (op.kind != OpKind::kReadStates && group.written) fail("takes this step's gradients");
    for (const OpId a : chunk.arrivals) {
      if (program_.ops[static_cast<std::size_t>(a)].kind == op.kind) fail("comes twice");
    }
    chunk.arrivals.push_back(now_);
  }

  bool states_are_params(int g) const {
    return on_disk_.count(g) > 0 && written_apart_.count(g) == 0;
  }

  void update_chunk(ChunkState& chunk, GroupState& group) {
    const Op& op = program_.ops[static_cast<std::size_t>(now_)];
    if (chunk.update >= 0) fail("updates a chunk twice");
    if (group.written) fail("comes after this step's gradients");
    for (const OpId a : chunk.arrivals) need(a, "updates what is brought by");
    const auto brought = [&](OpKind kind) {
      return std::any_of(chunk.arrivals.begin(), chunk.arrivals.end(), [&](OpId a) {
        return program_.ops[static_cast<std::size_t>(a)].kind == kind;
      });
    };
    const bool there = op.chunk < program_.chunks_ahead;
    if (ring_.states_on_disk() && !there && !brought(OpKind::kReadStates)) {
      fail("lacks its states");
    }
    const bool off_disk = ring_.grads_from_disk();
    if (off_disk && !brought(OpKind::kReadGrads)) fail("lacks its gradients");
    const bool off_device = ring_.grads_from_device();
    if (off_device && !brought(OpKind::kCopyGrads)) fail("lacks its gradients");
    if (!off_disk && !off_device) touch_grads(op.group, false);
    chunk.update = now_;
    ++group.updates;
  }

  void depart(const Op& op, ChunkState& chunk, GroupState& group) {
    if (chunk.update < 0) return fail("takes away a chunk that was not updated");
    need(chunk.update, "takes away what is updated by");
    if (op.kind == OpKind::kWriteStates) {
      if (std::exchange(chunk.written, true)) fail("comes twice");
      ++group.state_writes;
    }
    if (op.kind == OpKind::kCopyParams) ++group.copies;
    if (op.kind == OpKind::kWriteParams) ++group.param_writes;
  }

  // --- everything else off the compute lane ---

  void move(const Op& op) {
    if (op.lane == Lane::kPipe) {
      cross(op);
    } else if (op.bucket >= 0) {
      move_bucket(op);
    } else if (op.unit >= 0) {
      move_input(op);
    } else {
      move_shard(op);
    }
  }

  // Between stages.
  void cross(const Op& op) {
    switch (op.kind) {
      case OpKind::kReceiveActivation:
        inputs_[{op.unit, op.micro_batch}] = op.device_slot;
        return fill(op.device_slot, {What::kInput, op.unit, op.micro_batch});
      case OpKind::kReceiveGradient:
        received_[{op.unit, op.micro_batch}] = op.device_slot;
        return fill(op.device_slot, {What::kGradient, op.unit, op.micro_batch});
      case OpKind::kSendActivation:
        return take(op.device_slot, {What::kOutput, op.unit, op.micro_batch});
      default:
        return take(op.device_slot, {What::kGradient, op.unit, op.micro_batch});
    }
  }

  void move_shard(const Op& op) {
    const Content shard{What::kShard, op.group, 0};
    if (op.kind == OpKind::kReadShard) {
      read_params(op.group, true, false);
      return fill(op.host_slot, shard);
    }
    if (op.kind == OpKind::kFetchShard) {
      if (on_disk_.count(op.group) > 0) {
        take(op.host_slot, shard);
      } else {
        read_params(op.group, false, true);
      }
      return fill(op.device_slot, shard);
    }
    if (fetched_.count(op.group) > 0) {
      take(op.device_slot, shard);
    } else {
      read_params(op.group, false, false);
    }
    if (op.device_slot >= 0) touch({Space::kSlot, op.device_slot, 0}, true);
  }

  void move_bucket(const Op& op) {
    const Content bucket{What::kBucket, op.bucket, 0};
    switch (op.kind) {
      case OpKind::kReduceGrads:
        if (op.device_slot >= 0) return fill(op.device_slot, bucket);
        return touch_pieces(op.bucket, true);
      case OpKind::kReadBucket:
        touch_pieces(op.bucket, false);
        return fill(op.host_slot, bucket);
      case OpKind::kStoreGrads:
        take(op.device_slot, bucket);
        if (op.host_slot < 0) return touch_pieces(op.bucket, true);
        if (op.accumulate) take(op.host_slot, bucket);
        return fill(op.host_slot, bucket);
      case OpKind::kWriteBucket:
        take(op.host_slot, bucket);
        for (const BucketPiece& piece : program_.buckets[static_cast<std::size_t>(op.bucket)]) {
          groups_[piece.group].to_disk = true;
        }
        return touch_pieces(op.bucket, true);
      default:
        return touch_pieces(op.bucket, true);
    }
  }

  void move_input(const Op& op) {
    const Content input{What::kInput, op.unit, op.micro_batch};
    const Place extent{Space::kInput, op.unit, many_inputs_ ? op.micro_batch : 0};
    switch (op.kind) {
      case OpKind::kSaveInput:
        take(op.device_slot, input);
        return fill(op.host_slot, input);
      case OpKind::kWriteInput:
        take(op.host_slot, input);
        touch(extent, true);
        extents_[extent] = input;
        return;
      case OpKind::kReadInput:
        touch(extent, false);
        if (extents_.count(extent) == 0 || extents_[extent] != input) fail("reads another input");
        return fill(op.host_slot, input);
      default:
        take(op.host_slot, input);
        inputs_[{op.unit, op.micro_batch}] = op.device_slot;
        return fill(op.device_slot, input);
    }
  }

  // --- the compute lane ---

  void compute(const Op& op) {
    for (const BufferId b : op.live) {
      const Buffer& buffer = program_.buffers[static_cast<std::size_t>(b)];
      const bool sent = buffer.unit < 0 && buffer.micro_batch >= 0;
      if (sent && buffer.tag == Tag::kActivations)
        fill(b, {What::kOutput, op.unit, op.micro_batch});
      if (sent && buffer.tag == Tag::kActivationGradients) {
        fill(b, {What::kGradient, op.unit, op.micro_batch});
      }
      if (buffer.tier != Tier::kDevice || buffer.tag != Tag::kActivations || buffer.unit < 0)
        continue;
      fill(b, {What::kInput, buffer.unit, buffer.micro_batch});
      inputs_[{buffer.unit, buffer.micro_batch}] = b;
    }
    const auto gradient = received_.find({op.unit, op.micro_batch});
    if (op.kind == OpKind::kBackward && gradient != received_.end()) {
      take(gradient->second, {What::kGradient, op.unit, op.micro_batch});
    }
    // Weights have their input in what was deferred.
    if ((op.unit > 0 || (op.unit == 0 && fed_)) && op.kind != OpKind::kBackwardWeights) {
      const auto input = inputs_.find({op.unit, op.micro_batch});
      if (input == inputs_.end()) return fail("has no input");
      take(input->second, {What::kInput, op.unit, op.micro_batch});
    }
    for (const int g : op.reads) {
      if (gathered_.count(g) == 0) read_params(g, false, false);
    }
    for (const int g : op.writes) write_full_grads(g);
    if (op.kind == OpKind::kAddGrads || op.kind == OpKind::kAddReplicas) {
      touch_grads(op.group, true);
    }
    if (op.kind == OpKind::kUpdate) touch_grads(op.group, false);
    if (op.kind == OpKind::kNormAndScale) take_norm();
  }

  // Stages 0 and 1 may keep sums in the full gradient; whatever the stage, it is this step's now.
  void write_full_grads(int g) {
    groups_[g].written = true;
    keep_taken(g);
    if (grad_slots_.count(g) == 0) touch({Space::kGrads, g, 0}, true);
  }

  void take_norm() {
    for (auto& [g, group] : groups_) {
      touch_grads(g, false);
      if (!group.to_disk) continue;
      for (const int c : chunks_of(g)) {
        const OpId summed = chunks_[static_cast<std::size_t>(c)].summed;
        if (summed < 0) return fail("lacks the squares of a chunk");
        need(summed, "needs the sum of");
      }
    }
  }

  const Program& program_;
  const OpOrder& order_;
  RingCheck ring_;
  SpeculationCheck early_;
  bool trains_ = false;
  bool updates_ = false;         // or should
  bool fed_ = false;             // the first unit, by another stage
  bool many_inputs_ = false;     // on NVMe an extent a micro-batch
  std::set<int> gathered_;       // groups
  std::set<int> fetched_;        // groups whose shards are on the host or on NVMe
  std::set<int> on_disk_;        // of these, on NVMe
  std::set<int> grad_slots_;     // groups whose full gradients come and go
  std::set<int> written_apart_;  // whose parameters go there beside the states
  OpId now_ = -1;
  std::string fault_;
  Touches touches_{order_};
  std::map<Place, Content> extents_;
  std::map<std::pair<int, int>, BufferId> inputs_;    // on the device: unit, micro-batch
  std::map<std::pair<int, int>, BufferId> received_;  // gradients, from another stage
  std::map<int, GroupState> groups_;
  std::map<int, std::vector<int>> by_group_;
  std::vector<ChunkState> chunks_;
};

}  // namespace

std::string name_in_fault(const Program& program, std::size_t op) {
  return "operation " + std::to_string(op) + " (" + std::string(name_of(program.ops[op].kind)) +
         ") ";
}

std::string find_tier_fault(const Program& program, const OpOrder& order) {
  return TierChecker(program, order).run();
}

}  // namespace sluice
