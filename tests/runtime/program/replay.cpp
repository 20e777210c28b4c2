#include "tests/runtime/program/replay.hpp"

#include <algorithm>
#include <set>

#include "tests/runtime/program/replay_state.hpp"
#include "zero/partition_plan.hpp"

namespace sluice {
namespace {

// Units that write the group's gradients.
int writers_of(const StepShape& shape, int g) {
  std::ptrdiff_t count = 0;
  for (const UnitShape& unit : shape.units) count += std::ranges::count(unit.groups, g);
  return static_cast<int>(count);
}

class Player {
 public:
  Player(const Program& program, const StepShape& shape, bool training)
      : program_(program),
        shape_(shape),
        training_(training),
        micro_batches_(training ? shape.micro_batches : 1),
        state_(program.buffers.size(), 0),
        groups_(shape.groups.size()) {
    result_.gathers.assign(shape.groups.size(), 0);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const int streams = sums_in_shards() ? writers_of(shape_, static_cast<int>(g)) : 1;
      groups_[g].shards.assign(
          static_cast<std::size_t>(streams),
          std::vector<std::int64_t>(
              static_cast<std::size_t>(shape.groups[g].shard_elems / kAlignElems), kPoison));
      const bool has_slot = !keeps_full_gradients(shape) || shape.groups[g].rounds_gradients;
      if (!has_slot) groups_[g].grads[-1] = {};
    }
    list_uses();
  }

  ReplayResult run() {
    for (std::size_t i = 0; i < program_.ops.size() && result_.fault.empty(); ++i) {
      step(static_cast<int>(i));
    }
    expect(next_use_ == uses_.size(), "some unit never runs");
    expect(over_ >= newest_comm_, "something is on its way at the end");
    for (const int s : state_) expect(s == 2, "a buffer is not freed");
    for (const GroupPlay& g : groups_) expect(!training_ || g.updated, "a group is not updated");
    return result_;
  }

 private:
  void list_uses() {
    const int head = unit_count() - 1;
    const int together = shape_.layer_major ? micro_batches_ : 1;
    for (int first = 0; first < micro_batches_; first += together) {
      const auto add = [&](OpKind kind, int u) {
        for (int m = first; m < first + together; ++m) uses_.push_back({kind, u, m});
      };
      for (int u = 0; u < head; ++u) add(OpKind::kForward, u);
      add(OpKind::kLossHead, head);
      for (int u = head - 1; training_ && u >= 0; --u) add(OpKind::kBackward, u);
    }
  }

  // Micro-batches are summed in shards, one for each unit that writes a group.
  bool sums_in_shards() const {
    return micro_batches_ > 1 && shape_.reduce_every == ReduceEvery::kMicroBatch;
  }
  // Of one content of a full gradient, before it is sent.
  int writes_expected(int g) const {
    if (sums_in_shards()) return 1;
    const bool step = shape_.reduce_every == ReduceEvery::kStep;
    return writers_of(shape_, g) * (step ? micro_batches_ : 1);
  }

  void expect(bool condition, const std::string& what) {
    if (!condition && result_.fault.empty()) result_.fault = at_ + what;
  }
  void prefer(bool condition, const std::string& what) {
    if (!condition && result_.waste.empty()) result_.waste = at_ + what;
  }
  GroupPlay& play(int g) { return groups_[static_cast<std::size_t>(g)]; }
  const GroupShape& group(int g) const { return shape_.groups[static_cast<std::size_t>(g)]; }
  const UnitShape& unit(int u) const { return shape_.units[static_cast<std::size_t>(u)]; }
  int unit_count() const { return static_cast<int>(shape_.units.size()); }
  bool is_of(int g, int u) const { return std::ranges::count(unit(u).groups, g) > 0; }

  void step(int i) {
    const Op& op = program_.ops[static_cast<std::size_t>(i)];
    at_ = "operation " + std::to_string(i) + " (" + std::string(name_of(op.kind)) + "): ";
    for (const OpId w : op.waits) {
      expect(w >= 0 && w < i, "waits for the future");
      if (!result_.fault.empty()) return;
      const bool comm = program_.ops[static_cast<std::size_t>(w)].lane == Lane::kComm;
      if (comm && op.lane == Lane::kCompute) over_ = std::max(over_, w);
    }
    for (const BufferId b : op.dead_before) kill(b);
    for (const BufferId b : op.live) revive(b);
    act(i, op);
    if (op.lane == Lane::kComm) newest_comm_ = i;
    for (const BufferId b : op.dead_after) kill(b);
    last_kind_ = op.kind;
  }

  void act(int i, const Op& op) {
    switch (op.kind) {
      case OpKind::kLoadBatch:
        expect(op.micro_batch < micro_batches_ && loaded_.insert(op.micro_batch).second,
               "loads a batch that is not wanted");
        break;
      case OpKind::kGather:
        gather(i, op);
        break;
      case OpKind::kRelease:
        break;
      case OpKind::kForward:
      case OpKind::kLossHead:
      case OpKind::kBackward:
        use(op);
        break;
      case OpKind::kReduceGrads:
        reduce(i, op);
        break;
      case OpKind::kRoundGrads:
        round(i, op);
        break;
      case OpKind::kAddGrads:
        add_streams(op);
        break;
      case OpKind::kGatherGrads:
        gather_back(op);
        break;
      case OpKind::kNormAndScale:
        expect(over_ >= newest_comm_, "the norm is taken before the last reduction is over");
        normed_ = true;
        for (int g = 0; g < static_cast<int>(groups_.size()); ++g) expect_whole(g);
        break;
      case OpKind::kUpdate:
        expect(normed_ != op.in_backward && !play(op.group).updated,
               "updates out of turn or twice");
        if (op.in_backward) expect_whole(op.group);
        play(op.group).updated = true;
        break;
      default:  // programs with tiers are for tier_simulation.hpp
        expect(false, "moves between tiers");
    }
  }

  void revive(BufferId b) {
    int& state = state_[static_cast<std::size_t>(b)];
    expect(state == 0, "revives a buffer");
    state = 1;
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(b)];
    if (buffer.tag == Tag::kGatheredParameters) {
      expect(!play(buffer.group).has_slot, "gathers into a second slot");
      play(buffer.group).has_slot = true;
    }
    if (buffer.tag == Tag::kGradientBuckets) {
      GroupPlay& g = play(buffer.group);
      for (const auto& [slot, grad] : g.grads) {
        expect(grad.last_reduction >= 0, "opens a second gradient slot before the first is sent");
      }
      g.grads[b] = {};
      g.newest = b;
    }
  }

  void kill(BufferId b) {
    int& state = state_[static_cast<std::size_t>(b)];
    expect(state == 1, "frees what is not alive");
    state = 2;
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(b)];
    if (buffer.tag == Tag::kGatheredParameters) {
      expect(play(buffer.group).gather <= over_, "frees parameters on their way");
      play(buffer.group).has_slot = false;
    }
    if (buffer.tag == Tag::kGradientBuckets) {
      const GradPlay& g = play(buffer.group).grads[b];
      expect(g.last_reduction >= 0 && g.last_reduction <= over_, "frees gradients on their way");
      expect(g.sent == group(buffer.group).shard_elems, "frees gradients that were not sent");
      play(buffer.group).grads.erase(b);
    }
  }

  void gather(int i, const Op& op) {
    const bool alone = rounds_master(shape_, op.group) && shape_.dp == 1;
    expect(is_gathered(shape_, op.group) && op.lane == (alone ? Lane::kCompute : Lane::kComm),
           "has no business here");
    if (alone) over_ = i;
    expect(group(op.group).resident || play(op.group).has_slot, "gathers into nothing");
    play(op.group).gather = i;
    ++result_.gathers[static_cast<std::size_t>(op.group)];
  }

  std::vector<int> read_by(const UseOfUnit& use) const {
    const UnitShape& u = unit(use.unit);
    const bool reads = use.kind != OpKind::kBackward || u.backward_reads_params;
    return reads ? u.groups : std::vector<int>{};
  }

  void use(const Op& op) {
    expect(next_use_ < uses_.size() && loaded_.count(op.micro_batch) > 0,
           "runs too often or too early");
    if (!result_.fault.empty()) return;
    const UseOfUnit& due = uses_[next_use_];
    expect(op.kind == due.kind && op.unit == due.unit && op.micro_batch == due.micro_batch,
           "is not the unit that comes next");
    const bool keeps = training_ && (op.kind == OpKind::kLossHead || !shape_.recompute);
    if (op.kind != OpKind::kBackward) expect(op.save == keeps, "keeps the wrong things");
    if (op.kind == OpKind::kBackward) expect(op.recompute == shape_.recompute, "recompute");
    for (const int g : unit(op.unit).groups) {
      expect(!play(g).updated, "uses a group that was updated");
    }
    for (const int g : read_by(due)) {
      if (!is_gathered(shape_, g)) continue;
      const GroupPlay& p = play(g);
      expect(p.gather >= 0 && p.gather <= over_, "reads parameters that have not arrived");
      expect(group(g).resident || p.has_slot, "reads parameters that were released");
    }
    check_window();
    if (training_ && op.kind != OpKind::kForward) {
      write_grads(op);
      if (!keeps_full_gradients(shape_)) check_grad_slots(op);
    }
    ++next_use_;
  }

  void check_window() {
    std::vector<bool> wanted(groups_.size(), false);
    int ahead = 0;  // micro-batches of one unit in a row count once
    for (std::size_t j = next_use_; j < uses_.size(); ++j) {
      if (j > next_use_ && shape_.layer_major &&
          (uses_[j].unit != uses_[j - 1].unit || uses_[j].kind != uses_[j - 1].kind)) {
        ++ahead;
      }
      if (j > next_use_ && !shape_.layer_major) ++ahead;
      if (ahead > (gathers_alone(shape_) ? 0 : shape_.prefetch_units)) break;
      for (const int g : read_by(uses_[j])) wanted[static_cast<std::size_t>(g)] = true;
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      prefer(!groups_[g].has_slot || wanted[g], "holds parameters outside the window");
      prefer(groups_[g].has_slot || !wanted[g] || shape_.groups[g].resident,
             "has not started what the window wants");
    }
  }

  // Unit u's gradient in micro-batch m is a power of four of its own, so that a sum tells which
  // gradients are in it, and how often.
  std::int64_t gradient_of(int g, int u, int m) const {
    int which = 0;
    for (int before = 0; before < u; ++before) which += is_of(g, before) ? 1 : 0;
    return std::int64_t{1} << (2 * (2 * m + which));
  }

  GradPlay& newest_grad(int g) {
    GroupPlay& p = play(g);
    expect(p.grads.count(p.newest) > 0, "has no gradients to work on");
    return p.grads[p.newest];
  }

  void write_grads(const Op& op) {
    for (const int g : unit(op.unit).groups) {
      GradPlay& p = newest_grad(g);
      expect(p.last_reduction <= over_, "writes gradients that are being reduced");
      if (std::find(op.opens.begin(), op.opens.end(), g) != op.opens.end()) {
        p = {.value = 0, .last_reduction = -1};
      }
      p.value += gradient_of(g, op.unit, op.micro_batch);
      ++p.writes;
    }
  }

  // Alive may be: gradients that units still add to, less than a bucket that waits to be full, and
  // those of the reductions issued last.
  void check_grad_slots(const Op& op) {
    std::int64_t unsent_bytes = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const bool used = is_of(static_cast<int>(g), op.unit);
      for (const auto& [slot, p] : groups_[g].grads) {
        const bool open = p.writes < writes_expected(static_cast<int>(g));
        if (open || (used && slot == groups_[g].newest)) continue;
        const std::int64_t unsent = shape_.groups[g].shard_elems - p.sent;
        if (unsent > 0) {
          unsent_bytes += unsent * shape_.dp * 4;
        } else {
          prefer(p.last_reduction >= newest_batch_ &&
                     (op.kind != OpKind::kLossHead || shape_.layer_major),
                 "holds gradients that were reduced long ago");
        }
      }
    }
    prefer(unsent_bytes < bucket_limit(), "holds more than a bucket of gradients unsent");
  }

  std::int64_t bucket_limit() const {
    return std::max(shape_.bucket_bytes, kAlignElems * shape_.dp * 4);
  }

  void reduce(int i, const Op& op) {
    expect(!reduces_in_place(shape_), "has nothing to reduce");
    const bool each = shape_.reduce_every == ReduceEvery::kMicroBatch;
    expect(op.lane == Lane::kComm && (each || op.micro_batch + 1 == micro_batches_), "too early");
    expect(op.accumulate == (each && op.micro_batch > 0), "accumulates wrongly");
    if (last_kind_ != OpKind::kReduceGrads && last_kind_ != OpKind::kGatherGrads) newest_batch_ = i;
    std::int64_t elems = 0;
    for (const BucketPiece& piece : program_.buckets[static_cast<std::size_t>(op.bucket)]) {
      GradPlay& p = newest_grad(piece.group);
      expect(p.writes == writes_expected(piece.group), "reduces gradients that are not complete");
      prefer(piece.begin == p.sent, "pieces out of order");
      auto& shards = play(piece.group).shards;
      expect(static_cast<std::size_t>(piece.stream) < shards.size(), "has no such shard");
      if (!result_.fault.empty()) return;
      for (std::int64_t e = piece.begin; e < piece.begin + piece.elems; e += kAlignElems) {
        std::int64_t& sum = shards[static_cast<std::size_t>(piece.stream)]
                                  [static_cast<std::size_t>(e / kAlignElems)];
        sum = op.accumulate ? sum + p.value : p.value;
      }
      p.sent += piece.elems;
      p.last_reduction = i;
      elems += piece.elems;
    }
    prefer(elems * shape_.dp * 4 <= bucket_limit(), "a bucket over its size");
  }

  void round(int i, const Op& op) {
    expect(reduces_in_place(shape_) && group(op.group).rounds_gradients, "has nothing to round");
    GradPlay& p = newest_grad(op.group);
    expect(p.writes == writes_expected(op.group), "rounds gradients that are not complete");
    for (std::int64_t& sum : play(op.group).shards[0]) sum = p.value;
    p.sent = group(op.group).shard_elems;
    p.last_reduction = over_ = i;
  }

  void add_streams(const Op& op) {
    auto& shards = play(op.group).shards;
    for (const auto& [slot, grad] : play(op.group).grads) {
      expect(grad.last_reduction <= over_, "adds gradients on their way");
    }
    for (std::size_t s = 1; s < shards.size(); ++s) {
      for (std::size_t e = 0; e < shards[0].size(); ++e) shards[0][e] += shards[s][e];
    }
    shards.resize(1);
  }

  void gather_back(const Op& op) {
    expect(shape_.stage == 0 && op.lane == Lane::kComm, "gathers gradients");
    for (const BucketPiece& piece : program_.buckets[static_cast<std::size_t>(op.bucket)]) {
      GroupPlay& p = play(piece.group);
      p.gathered_back += piece.elems;
      expect(newest_grad(piece.group).sent >= piece.begin + piece.elems && p.shards.size() == 1,
             "gathers what was not reduced");
    }
  }

  // The sum of all units' gradients of the group is where an update reads it.
  void expect_whole(int g) {
    std::int64_t all = 0;
    for (int u = 0; u < unit_count(); ++u) {
      if (!is_of(g, u)) continue;
      for (int m = 0; m < micro_batches_; ++m) all += gradient_of(g, u, m);
    }
    if (reduces_in_place(shape_) && !group(g).rounds_gradients) {
      return expect(newest_grad(g).value == all, "a sum is wrong");
    }
    for (const auto& [slot, grad] : play(g).grads) {
      expect(grad.last_reduction <= over_, "a reduction is on its way");
    }
    expect(play(g).shards.size() == 1, "a group's gradients are apart");
    for (const std::int64_t sum : play(g).shards[0]) expect(sum == all, "a sum is wrong");
    if (shape_.stage > 0 || reduces_in_place(shape_)) return;
    expect(play(g).gathered_back == group(g).shard_elems, "gradients not gathered");
  }

  const Program& program_;
  const StepShape& shape_;
  const bool training_;
  const int micro_batches_;
  ReplayResult result_;
  std::string at_;
  std::vector<int> state_;  // 0 not yet, 1 alive, 2 freed
  std::vector<GroupPlay> groups_;
  std::vector<UseOfUnit> uses_;
  std::size_t next_use_ = 0;
  std::set<int> loaded_;  // micro-batches
  int over_ = -1;         // newest operation of the comm lane known to be over
  int newest_comm_ = -1;  // newest issued
  int newest_batch_ = 0;  // first reduction issued after the last backward that issued any
  bool normed_ = false;
  OpKind last_kind_ = OpKind::kLoadBatch;
};

}  // namespace

ReplayResult replay(const Program& program, const StepShape& shape, bool training) {
  return Player(program, shape, training).run();
}

}  // namespace sluice
