#include "runtime/program/program_check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace sluice {
namespace {

class Checker {
 public:
  explicit Checker(const Program& program)
      : program_(program), alive_(program.buffers.size(), 0), done_(program.ops.size(), false) {
    for (const Op& op : program.ops) {
      trains_ = trains_ || op.kind == OpKind::kBackward;
      if (op.kind == OpKind::kGather) gathered_.emplace(op.group, -1);
      if (op.unit >= 0) units_.insert(op.unit);
    }
    for (const Buffer& buffer : program.buffers) {
      if (buffer.in_arena && buffer.group >= 0) slotted_.insert({buffer.tag, buffer.group});
    }
  }

  std::string run() {
    for (std::size_t i = 0; i < program_.ops.size() && fault_.empty(); ++i) step(i);
    for (std::size_t b = 0; b < alive_.size() && fault_.empty(); ++b) {
      if (alive_[b] != 2) fault_ = "buffer " + std::to_string(b) + " never lives or never dies";
    }
    for (std::size_t i = 0; i < done_.size() && fault_.empty(); ++i) {
      if (!done_[i]) fail(i, "is never waited for");
    }
    if (fault_.empty() && !forwards_.empty()) fault_ = "a forward has no backward";
    return fault_;
  }

 private:
  void fail(std::size_t op, const std::string& what) {
    if (!fault_.empty()) return;
    fault_ = "operation " + std::to_string(op) + " (" +
             std::string(name_of(program_.ops[op].kind)) + ") " + what;
  }

  bool in_range(const Op& op) const {
    const auto known = [&](const std::vector<BufferId>& ids) {
      return std::all_of(ids.begin(), ids.end(), [&](BufferId b) {
        return b >= 0 && static_cast<std::size_t>(b) < alive_.size();
      });
    };
    return known(op.dead_before) && known(op.live) && known(op.dead_after) &&
           op.bucket < static_cast<int>(program_.buckets.size());
  }

  void step(std::size_t i) {
    const Op& op = program_.ops[i];
    if (!in_range(op)) {
      fail(i, "names a buffer or a bucket that is not there");
      return;
    }
    for (const OpId w : op.waits) {
      if (w < 0 || static_cast<std::size_t>(w) >= i) {
        fail(i, "waits for what has not been issued");
        return;
      }
      finish(static_cast<std::size_t>(w), op.lane == Lane::kCompute);
    }
    for (const BufferId b : op.dead_before) die(i, b);
    for (const BufferId b : op.live) live(i, b);
    use_slots(i);
    read_params(i);
    write_grads(i);
    if (op.kind == OpKind::kReduceGrads) reduce(i);
    if (op.kind == OpKind::kGatherGrads && reduced_.count(op.bucket) == 0) {
      fail(i, "gathers gradients that were not reduced");
    }
    if (op.kind == OpKind::kNormAndScale || op.kind == OpKind::kUpdate) finish_step(i);
    keep_order(i);
    if (op.lane == Lane::kCompute) done_[i] = true;
    for (const BufferId b : op.dead_after) die(i, b);
  }

  // Lanes are first in, first out: whoever has waited for one has waited for all before it.
  void finish(std::size_t op, bool host_waits) {
    if (!host_waits) return;
    for (std::size_t i = op + 1; i-- > 0;) {
      if (program_.ops[i].lane != program_.ops[op].lane) continue;
      if (done_[i]) break;
      done_[i] = true;
    }
  }

  void live(std::size_t i, BufferId b) {
    const auto id = static_cast<std::size_t>(b);
    if (alive_[id] != 0) fail(i, "revives buffer " + std::to_string(b));
    alive_[id] = 1;
    const Buffer& buffer = program_.buffers[id];
    if (!buffer.in_arena) return;
    if (buffer.arena_offset < 0 || buffer.arena_offset + buffer.bytes > program_.arena_bytes) {
      fail(i, "has a slot outside the arena");
    }
    for (const BufferId other : slots_) {
      const Buffer& there = program_.buffers[static_cast<std::size_t>(other)];
      if (buffer.arena_offset < there.arena_offset + there.bytes &&
          there.arena_offset < buffer.arena_offset + buffer.bytes) {
        fail(i, "overwrites a living slot");
      }
      if (buffer.group >= 0 && buffer.group == there.group && buffer.tag == there.tag) {
        fail(i, "gives group " + std::to_string(buffer.group) + " a second slot");
      }
    }
    slots_.insert(b);
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
      if (!done_[user]) fail(i, "frees what operation " + std::to_string(user) + " uses");
    }
  }

  // A gather writes the slot of its group, a reduction reads those of its pieces.
  void use_slots(std::size_t i) {
    const Op& op = program_.ops[i];
    if (op.lane == Lane::kCompute) return;
    for (const BufferId b : slots_) {
      const Buffer& buffer = program_.buffers[static_cast<std::size_t>(b)];
      bool uses = op.kind == OpKind::kGather && buffer.tag == Tag::kGatheredParameters &&
                  buffer.group == op.group;
      if (op.bucket >= 0 && buffer.tag == Tag::kGradientBuckets) {
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

  // A group that has slots of this tag has one now.
  void need_slot(std::size_t i, Tag tag, int group) {
    if (slotted_.count({tag, group}) == 0) return;
    const bool there = std::any_of(slots_.begin(), slots_.end(), [&](BufferId b) {
      const Buffer& buffer = program_.buffers[static_cast<std::size_t>(b)];
      return buffer.tag == tag && buffer.group == group;
    });
    if (!there) fail(i, "needs a slot for group " + std::to_string(group) + ", which has none");
  }

  // Where nothing is gathered (stage 0), every group is always whole.
  void read_params(std::size_t i) {
    if (gathered_.empty()) return;
    for (const int g : program_.ops[i].reads) {
      need_slot(i, Tag::kGatheredParameters, g);
      const auto gather = gathered_.find(g);
      if (gather == gathered_.end() || gather->second < 0 ||
          !done_[static_cast<std::size_t>(gather->second)]) {
        fail(i, "reads parameters of group " + std::to_string(g) + ", which have not arrived");
      }
    }
  }

  void write_grads(std::size_t i) {
    const Op& op = program_.ops[i];
    for (const int g : op.writes) {
      need_slot(i, Tag::kGradientBuckets, g);
      if (sent_.count({g, op.micro_batch}) > 0) {
        fail(i, "writes gradients of group " + std::to_string(g) + " that were already sent");
      }
      for (const std::size_t reduction : reductions_[g]) {
        if (!done_[reduction]) {
          fail(i, "writes gradients that operation " + std::to_string(reduction) + " reads");
        }
      }
      reductions_[g].clear();
      written_.insert({g, op.micro_batch});
    }
  }

  void reduce(std::size_t i) {
    const Op& op = program_.ops[i];
    reduced_.insert(op.bucket);
    for (const BucketPiece& piece : program_.buckets[static_cast<std::size_t>(op.bucket)]) {
      need_slot(i, Tag::kGradientBuckets, piece.group);
      if (written_.count({piece.group, op.micro_batch}) == 0) {
        fail(i, "reduces gradients that were not written");
      }
      sent_.insert({piece.group, op.micro_batch});
      reductions_[piece.group].push_back(i);
    }
  }

  void finish_step(std::size_t i) {
    const bool updates = program_.ops[i].kind == OpKind::kUpdate;
    if (updates && !normed_) fail(i, "comes before the norm");
    normed_ = true;
    if (!forwards_.empty()) fail(i, "comes before a backward");
    for (std::size_t j = 0; j < program_.ops.size(); ++j) {
      const OpKind kind = program_.ops[j].kind;
      if ((kind == OpKind::kReduceGrads || kind == OpKind::kGatherGrads) && !done_[j]) {
        fail(i, "comes before operation " + std::to_string(j) + " is over");
      }
    }
  }

  // Each unit once, after the unit that makes its input.
  void keep_order(std::size_t i) {
    const Op& op = program_.ops[i];
    if (op.kind == OpKind::kLoadBatch) loaded_.insert(op.micro_batch);
    if (op.unit < 0) return;
    if (loaded_.count(op.micro_batch) == 0) fail(i, "comes before its batch");
    const auto ran = [&](OpKind kind, int unit) {
      return ran_.count({kind, unit, op.micro_batch}) > 0;
    };
    if (!ran_.insert({op.kind, op.unit, op.micro_batch}).second) fail(i, "runs a second time");
    if (op.kind == OpKind::kBackward) {
      if (forwards_.erase({op.unit, op.micro_batch}) == 0) fail(i, "has no forward");
      if (!ran(OpKind::kBackward, op.unit + 1) && !ran(OpKind::kLossHead, op.unit + 1)) {
        fail(i, "has no gradient to start from");
      }
      return;
    }
    if (units_.count(op.unit - 1) > 0 && !ran(OpKind::kForward, op.unit - 1)) {
      fail(i, "has no input");
    }
    if (op.kind == OpKind::kForward && trains_) forwards_.insert({op.unit, op.micro_batch});
  }

  const Program& program_;
  bool trains_ = false;
  std::string fault_;
  std::vector<int> alive_;  // 0 not yet, 1 alive, 2 dead
  std::vector<bool> done_;
  std::set<BufferId> slots_;               // alive
  std::set<std::pair<Tag, int>> slotted_;  // what is kept in slots: tag, group
  std::map<BufferId, std::vector<std::size_t>> users_;
  std::map<int, OpId> gathered_;  // newest gather by group, -1 before the first
  std::map<int, std::vector<std::size_t>> reductions_;  // by group, since it was last written
  std::set<std::pair<int, int>> written_;               // group, micro-batch
  std::set<std::pair<int, int>> sent_;                  // the same
  std::set<int> reduced_;                               // buckets
  std::set<int> units_;
  std::set<std::pair<int, int>> forwards_;  // unit, micro-batch; backward to come
  std::set<std::tuple<OpKind, int, int>> ran_;
  std::set<int> loaded_;  // micro-batches
  bool normed_ = false;
};

}  // namespace

std::string find_fault(const Program& program) { return Checker(program).run(); }

}  // namespace sluice
