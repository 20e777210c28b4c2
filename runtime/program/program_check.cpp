#include "runtime/program/program_check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/program/op_check.hpp"
#include "runtime/program/op_order.hpp"
#include "runtime/program/tier_check.hpp"

namespace sluice {
namespace {

class Checker {
 public:
  Checker(const Program& program, const OpOrder& order)
      : program_(program), order_(order), alive_(program.buffers.size(), 0) {
    for (const Op& op : program.ops) {
      trains_ =
          trains_ || (op.kind == OpKind::kBackward || (op.kind == OpKind::kLossHead && op.save));
      if (op.kind == OpKind::kGather) gathered_.emplace(op.group, -1);
      on_disk_ = on_disk_ || op.kind == OpKind::kWriteBucket;
      if (op.unit >= 0) units_.insert(op.unit);
      if (op.kind == OpKind::kReceiveActivation) fed_.insert(op.unit);
      if (op.kind == OpKind::kReceiveGradient) paid_.insert(op.unit);
      if (op.kind == OpKind::kSendActivation) feeds_.insert(op.unit);
      if (op.kind == OpKind::kSendGradient) pays_.insert(op.unit);
    }
    for (const auto& bucket : program.buckets) {
      for (const BucketPiece& piece : bucket) {
        std::int64_t& elems = shard_elems_[piece.group];
        elems = std::max(elems, piece.begin + piece.elems);
      }
    }
    for (const Buffer& buffer : program.buffers) {
      decodes_ = decodes_ || buffer.tag == Tag::kKvCache;
      if (buffer.in_arena && buffer.group >= 0) slotted_.insert({buffer.tag, buffer.group});
    }
  }

  std::string run() {
    for (std::size_t i = 0; i < program_.ops.size() && fault_.empty(); ++i) step(i);
    for (std::size_t b = 0; b < alive_.size() && fault_.empty(); ++b) {
      if (alive_[b] != 2) fault_ = "buffer " + std::to_string(b) + " never lives or never dies";
    }
    // Before it ends, the executor waits for everything; but nobody needs states before then.
    for (std::size_t i = 0; i < program_.ops.size() && fault_.empty(); ++i) {
      const Op& op = program_.ops[i];
      if (op.kind == OpKind::kWriteStates || op.ahead || op.speculative) continue;
      if (!order_.over_at_end(static_cast<OpId>(i))) fail(i, "is never waited for");
    }
    if (fault_.empty() && !forwards_.empty()) fault_ = "a forward has no backward";
    if (fault_.empty() && !halves_.empty()) fault_ = "a split backward is never ended";
    if (fault_.empty() && !unsent_out_.empty()) fault_ = "a tensor for another stage is not sent";
    return fault_;
  }

 private:
  void fail(std::size_t op, const std::string& what) {
    if (fault_.empty()) fault_ = name_in_fault(program_, op) + what;
  }
  [[nodiscard]] bool over(std::size_t op, std::size_t seen_by) const {
    return order_.over(static_cast<OpId>(op), static_cast<OpId>(seen_by));
  }

  void step(std::size_t i) {
    const Op& op = program_.ops[i];
    for (const BufferId b : op.dead_before) die(i, b);
    for (const BufferId b : op.live) live(i, b);
    use_slots(i);
    read_params(i);
    write_grads(i);
    if (op.kind == OpKind::kReduceGrads) reduce(i);
    if (op.kind == OpKind::kAddGrads) add_streams(i);
    if (op.kind == OpKind::kGatherGrads) gather_grads(i);
    const bool updates = op.kind == OpKind::kUpdate && op.chunk < 0;
    if (op.kind == OpKind::kNormAndScale || updates) finish_step(i);
    if (op.kind == OpKind::kAddReplicas) add_replicas(i);
    if (op.lane == Lane::kCompute) keep_order(i);
    if (op.lane == Lane::kPipe) cross(i);
    for (const BufferId b : op.dead_after) die(i, b);
  }

  void live(std::size_t i, BufferId b) {
    const auto id = static_cast<std::size_t>(b);
    if (alive_[id] != 0) fail(i, "revives buffer " + std::to_string(b));
    alive_[id] = 1;
    const Buffer& buffer = program_.buffers[id];
    if (!buffer.in_arena) return;
    const std::int64_t arena =
        buffer.tier == Tier::kDevice ? program_.arena_bytes : program_.host_arena_bytes;
    if (buffer.arena_offset < 0 || buffer.arena_offset + buffer.bytes > arena) {
      fail(i, "has a slot outside the arena");
    }
    for (const BufferId other : slots_) {
      const Buffer& there = program_.buffers[static_cast<std::size_t>(other)];
      if (buffer.tier == there.tier && buffer.arena_offset < there.arena_offset + there.bytes &&
          there.arena_offset < buffer.arena_offset + buffer.bytes) {
        fail(i, "overwrites a living slot");
      }
      // Of gradients, a slot that is being reduced may be outlived by the next one.
      if (buffer.group >= 0 && buffer.group == there.group && buffer.tag == there.tag &&
          (buffer.tag != Tag::kGradientBuckets || users_[other].empty())) {
        fail(i, "gives group " + std::to_string(buffer.group) + " a second slot");
      }
    }
    slots_.insert(b);
    newest_[{buffer.tag, buffer.group}] = b;
  }

  void die(std::size_t i, BufferId b) {
    const auto id = static_cast<std::size_t>(b);
    if (alive_[id] != 1) fail(i, "kills buffer " + std::to_string(b) + ", which is not alive");
    alive_[id] = 2;
    slots_.erase(b);
    const Buffer& buffer = program_.buffers[id];
    if (buffer.tag == Tag::kGradientBuckets && users_[b].empty()) {
      fail(i, "frees gradients that were not reduced");
    }
    for (const std::size_t user : users_[b]) {
      if (!over(user, i)) fail(i, "frees what operation " + std::to_string(user) + " uses");
    }
  }

  // A gather writes the slot of its group, a reduction reads those of its pieces.
  void use_slots(std::size_t i) {
    const Op& op = program_.ops[i];
    if (op.lane == Lane::kCompute) return;
    for (const BufferId b : {op.device_slot, op.host_slot}) {
      if (b < 0) continue;
      if (alive_[static_cast<std::size_t>(b)] != 1) fail(i, "works on a buffer that is not alive");
      users_[b].push_back(i);
    }
    for (const BufferId b : slots_) {
      const Buffer& buffer = program_.buffers[static_cast<std::size_t>(b)];
      bool uses = op.kind == OpKind::kGather && buffer.tag == Tag::kGatheredParameters &&
                  buffer.group == op.group;
      if (op.bucket >= 0 && buffer.tag == Tag::kGradientBuckets && is_newest(b)) {
        for (const BucketPiece& piece : program_.buckets[static_cast<std::size_t>(op.bucket)]) {
          uses = uses || piece.group == buffer.group;
        }
      }
      if (uses) users_[b].push_back(i);
    }
    if (op.kind == OpKind::kGather) {
      need_slot(i, Tag::kGatheredParameters, op.group);
      gathered_[op.group] = static_cast<OpId>(i);
    }
  }

  bool is_newest(BufferId b) const {
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(b)];
    return newest_.at({buffer.tag, buffer.group}) == b;
  }

  // A group that has slots of this tag has its newest now.
  void need_slot(std::size_t i, Tag tag, int group) {
    if (slotted_.count({tag, group}) == 0) return;
    const auto slot = newest_.find({tag, group});
    if (slot == newest_.end() || slots_.count(slot->second) == 0) {
      fail(i, "needs a slot for group " + std::to_string(group) + ", which has none");
    }
  }

  // Where nothing is gathered (stage 0), every group is always whole.
  void read_params(std::size_t i) {
    if (gathered_.empty()) return;
    for (const int g : program_.ops[i].reads) {
      need_slot(i, Tag::kGatheredParameters, g);
      const auto gather = gathered_.find(g);
      if (gather == gathered_.end() || gather->second < 0 ||
          !order_.over(gather->second, static_cast<OpId>(i))) {
        fail(i, "reads parameters of group " + std::to_string(g) + ", which have not arrived");
      }
    }
  }

  // What is opened is replaced: its last content has been reduced, or is in a slot of its own.
  void write_grads(std::size_t i) {
    const Op& op = program_.ops[i];
    for (const int g : op.opens) {
      if (std::find(op.writes.begin(), op.writes.end(), g) == op.writes.end()) {
        fail(i, "opens gradients that it does not write");
      }
      const bool part = sent_.count(g) > 0 && sent_elems_[g] < shard_elems_[g];
      if (unsent_.count(g) > 0 || part) fail(i, "replaces gradients that were not sent");
      sent_.erase(g);
      sent_elems_[g] = 0;
      unsent_.insert(g);
    }
    for (const int g : op.writes) {
      need_slot(i, Tag::kGradientBuckets, g);
      if (unsent_.count(g) == 0) fail(i, "adds to gradients that nobody opened");
      if (sent_.count(g) > 0) {
        fail(i, "writes gradients of group " + std::to_string(g) + " that were already sent");
      }
      if (slotted_.count({Tag::kGradientBuckets, g}) > 0) {
        if (!users_[newest_[{Tag::kGradientBuckets, g}]].empty()) {
          fail(i, "writes gradients that are being reduced");
        }
        continue;
      }
      for (const std::size_t reduction : reductions_[g]) {
        if (!over(reduction, i)) {
          fail(i, "writes gradients that operation " + std::to_string(reduction) + " reads");
        }
      }
    }
  }

  void reduce(std::size_t i) {
    for (const BucketPiece& piece :
         program_.buckets[static_cast<std::size_t>(program_.ops[i].bucket)]) {
      need_slot(i, Tag::kGradientBuckets, piece.group);
      if (unsent_.count(piece.group) == 0 && sent_.count(piece.group) == 0) {
        fail(i, "reduces gradients that were not written");
      }
      unsent_.erase(piece.group);
      sent_.insert(piece.group);
      if (piece.begin != sent_elems_[piece.group]) fail(i, "reduces a shard out of order");
      sent_elems_[piece.group] += piece.elems;
      reductions_[piece.group].push_back(i);
      if (piece.stream > 0 && !on_disk_) apart_.insert(piece.group);
    }
  }

  // Needs all of the group's reductions.
  void add_streams(std::size_t i) {
    const int g = program_.ops[i].group;
    if (apart_.erase(g) == 0 || unsent_.count(g) > 0) fail(i, "adds gradients too early");
    for (const std::size_t reduction : reductions_[g]) {
      if (!over(reduction, i)) fail(i, "adds gradients that are on their way");
    }
  }

  void gather_grads(std::size_t i) {
    for (const BucketPiece& piece :
         program_.buckets[static_cast<std::size_t>(program_.ops[i].bucket)]) {
      if (sent_elems_[piece.group] < piece.begin + piece.elems || apart_.count(piece.group) > 0) {
        fail(i, "gathers gradients that are not summed");
      }
      reductions_[piece.group].push_back(i);  // it writes the full gradient
      gathered_elems_[piece.group] += piece.elems;
    }
  }

  static bool feeds_norm(OpKind kind) {
    return kind == OpKind::kReduceGrads || kind == OpKind::kGatherGrads ||
           kind == OpKind::kStoreGrads || kind == OpKind::kWriteBucket ||
           kind == OpKind::kSumSquares;
  }

  void finish_step(std::size_t i) {
    const bool updates = program_.ops[i].kind == OpKind::kUpdate;
    if (updates && !normed_) fail(i, "comes before the norm");
    normed_ = true;
    if (!forwards_.empty()) fail(i, "comes before a backward");
    if (!apart_.empty()) fail(i, "comes before a group's gradients are added up");
    const bool whole = std::all_of(sent_.begin(), sent_.end(),
                                   [&](int g) { return sent_elems_[g] == shard_elems_[g]; });
    if (trains_ && gathered_.empty() && gathered_elems_ != shard_elems_) {
      fail(i, "comes before gradients are gathered");
    }
    if (!unsent_.empty() || !whole) fail(i, "comes before a group's gradients are sent");
    for (std::size_t j = 0; j < program_.ops.size(); ++j) {
      if (feeds_norm(program_.ops[j].kind) && !over(j, i)) {
        fail(i, "comes before operation " + std::to_string(j) + " is over");
      }
    }
  }

  // Needs all of the group's reductions, and comes before the norm, once.
  void add_replicas(std::size_t i) {
    const int g = program_.ops[i].group;
    if (normed_ || apart_.count(g) > 0 || unsent_.count(g) > 0 || !replicated_.insert(g).second) {
      fail(i, "adds gradients of other ranks too early or too late");
    }
    for (const std::size_t reduction : reductions_[g]) {
      if (!over(reduction, i)) fail(i, "adds gradients that are on their way");
    }
  }

  bool ran(OpKind kind, int unit, int micro_batch) const {
    return ran_.count({kind, unit, micro_batch}) > 0;
  }
  // Each once, micro-batches in turn.
  void run_once(std::size_t i) {
    const Op& op = program_.ops[i];
    if (!ran_.insert({op.kind, op.unit, op.micro_batch}).second) fail(i, "runs a second time");
    if (op.micro_batch > 0 && !ran(op.kind, op.unit, op.micro_batch - 1)) {
      fail(i, "runs a micro-batch out of turn");
    }
  }

  // Between stages. Whether what is received is there in time is for tier_check, which looks at who
  // touches a buffer.
  void cross(std::size_t i) {
    const Op& op = program_.ops[i];
    run_once(i);
    const bool sends = op.kind == OpKind::kSendActivation || op.kind == OpKind::kSendGradient;
    if (sends && unsent_out_.erase({op.kind, op.unit, op.micro_batch}) == 0) {
      fail(i, "sends what was not made");
    }
  }

  // Each unit once, after the unit that makes its input.
  void keep_order(std::size_t i) {
    const Op& op = program_.ops[i];
    if (op.kind == OpKind::kLoadBatch) loaded_.insert(op.micro_batch);
    if (op.unit < 0) return;
    run_once(i);
    if (op.kind == OpKind::kBackwardWeights) {
      if (halves_.erase({op.unit, op.micro_batch}) == 0) fail(i, "has nothing to begin with");
      return;
    }
    const bool back = op.kind == OpKind::kBackward;
    if (back || (op.kind == OpKind::kLossHead && trains_)) {
      if (pays_.count(op.unit) > 0) {
        unsent_out_.insert({OpKind::kSendGradient, op.unit, op.micro_batch});
      }
    }
    if (back) return keep_backward(i);
    keep_forward(i);
  }

  void keep_backward(std::size_t i) {
    const Op& op = program_.ops[i];
    if (forwards_.erase({op.unit, op.micro_batch}) == 0) fail(i, "has no forward");
    const bool from_stage = paid_.count(op.unit) > 0;
    if (from_stage ? !ran(OpKind::kReceiveGradient, op.unit, op.micro_batch)
                   : !ran(OpKind::kBackward, op.unit + 1, op.micro_batch) &&
                         !ran(OpKind::kLossHead, op.unit + 1, op.micro_batch)) {
      fail(i, "has no gradient to start from");
    }
    if (op.split) halves_.insert({op.unit, op.micro_batch});
  }

  void keep_forward(std::size_t i) {
    const Op& op = program_.ops[i];
    const int u = op.unit;
    const bool first = fed_.count(u) == 0 && units_.count(u - 1) == 0;
    if ((first || op.kind == OpKind::kLossHead) && !decodes_ &&
        loaded_.count(op.micro_batch) == 0) {
      fail(i, "comes before its batch");
    }
    if (fed_.count(u) > 0 ? !ran(OpKind::kReceiveActivation, u, op.micro_batch)
                          : !first && !ran(OpKind::kForward, u - 1, op.micro_batch)) {
      fail(i, "has no input");
    }
    if (op.kind != OpKind::kForward) return;
    if (feeds_.count(u) > 0) unsent_out_.insert({OpKind::kSendActivation, u, op.micro_batch});
    if (trains_) forwards_.insert({u, op.micro_batch});
  }

  const Program& program_;
  const OpOrder& order_;
  bool trains_ = false;
  bool decodes_ = false;  // a last stage takes no targets then
  bool on_disk_ = false;  // gradient shards: whoever reads them adds the streams
  std::string fault_;
  std::vector<int> alive_;                 // 0 not yet, 1 alive, 2 dead
  std::set<BufferId> slots_;               // alive
  std::set<std::pair<Tag, int>> slotted_;  // what is kept in slots: tag, group
  std::map<BufferId, std::vector<std::size_t>> users_;
  std::map<int, OpId> gathered_;                    // newest gather by group, -1 before the first
  std::map<std::pair<Tag, int>, BufferId> newest_;  // slot by tag, group
  std::map<int, std::vector<std::size_t>> reductions_;  // by group
  std::set<int> unsent_;                                // groups whose gradients are being written
  std::set<int> sent_;  // groups whose gradients, or a part of them, went out since
  std::map<int, std::int64_t> gathered_elems_;  // of gradients: where no parameters are gathered
  std::map<int, std::int64_t> shard_elems_;     // as far as buckets reach
  std::map<int, std::int64_t> sent_elems_;      // of each rank's shard, since the group was opened
  std::set<int> apart_;                         // groups with gradients in more than one shard
  std::set<int> units_;
  std::set<int> fed_;    // units that get their input from another stage
  std::set<int> feeds_;  // whose output goes to one
  std::set<int> paid_;   // that get the gradient of their output from one
  std::set<int> pays_;   // whose input's gradient goes to one
  std::set<std::tuple<OpKind, int, int>> unsent_out_;  // sends to come: unit, micro-batch
  std::set<std::pair<int, int>> halves_;               // split backwards; weights to come
  std::set<int> replicated_;                           // groups added up over other ranks
  std::set<std::pair<int, int>> forwards_;             // unit, micro-batch; backward to come
  std::set<std::tuple<OpKind, int, int>> ran_;
  std::set<int> loaded_;  // micro-batches
  bool normed_ = false;
};

}  // namespace

std::string find_fault(const Program& program) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const std::string fault = find_op_fault(program, i);
    if (!fault.empty()) return name_in_fault(program, i) + fault;
  }
  const OpOrder order(program);
  const std::string fault = Checker(program, order).run();
  return fault.empty() ? find_tier_fault(program, order) : fault;
}

}  // namespace sluice
