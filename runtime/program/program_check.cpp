#include "runtime/program/program_check.hpp"

#include <map>
#include <set>
#include <utility>

namespace sluice {
namespace {

class Checker {
 public:
  explicit Checker(const Program& program)
      : program_(program), alive_(program.buffers.size(), 0), done_(program.ops.size(), false) {
    for (const Op& op : program.ops) trains_ = trains_ || op.kind == OpKind::kBackward;
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

  void step(std::size_t i) {
    const Op& op = program_.ops[i];
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
    pair_up(op);
    if (op.lane == Lane::kCompute) done_[i] = true;
    for (const BufferId b : op.dead_after) die(i, b);
  }

  // Lanes are first in, first out: whoever has waited for one has waited for all before it.
  void finish(std::size_t op, bool host_waits) {
    if (!host_waits) return;
    for (std::size_t i = 0; i <= op; ++i) {
      if (program_.ops[i].lane == program_.ops[op].lane) done_[i] = true;
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
    }
    slots_.insert(b);
  }

  void die(std::size_t i, BufferId b) {
    const auto id = static_cast<std::size_t>(b);
    if (alive_[id] != 1) fail(i, "kills buffer " + std::to_string(b) + ", which is not alive");
    alive_[id] = 2;
    slots_.erase(b);
    for (const std::size_t user : users_[b]) {
      if (!done_[user] && user != i)
        fail(i, "frees what operation " + std::to_string(user) + " uses");
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
  }

  void pair_up(const Op& op) {
    const std::pair key{op.unit, op.micro_batch};
    if (op.kind == OpKind::kForward && trains_) forwards_.insert(key);
    if (op.kind == OpKind::kBackward && forwards_.erase(key) == 0) {
      fault_ = "a backward has no forward";
    }
  }

  const Program& program_;
  bool trains_ = false;
  std::string fault_;
  std::vector<int> alive_;  // 0 not yet, 1 alive, 2 dead
  std::vector<bool> done_;
  std::set<BufferId> slots_;
  std::map<BufferId, std::vector<std::size_t>> users_;
  std::set<std::pair<int, int>> forwards_;
};

}  // namespace

std::string find_fault(const Program& program) { return Checker(program).run(); }

}  // namespace sluice
