#include "runtime/program/check/ring_check.hpp"

#include <utility>

#include "base/index.hpp"

namespace sluice {

RingCheck::RingCheck(const Program& program, const OpOrder& order)
    : program_(program),
      order_(order),
      states_(program.chunk_slots > 0 ? static_cast<std::size_t>(program.chunk_slots) : 0),
      grads_(states_.size()) {
  for (const Op& op : program.ops) nth(has_, op.kind) = true;
}

// `takes`: the operation may bring its chunk into the slot. `again`: the chunk's second visit.
std::string RingCheck::enter(Part& part, OpId op, bool takes, bool again) {
  const int tenant = 2 * nth(program_.ops, op).chunk + static_cast<int>(again);
  if (part.tenant != tenant) {
    if (!takes) return "finds another chunk in its slot";
    part.tenant = tenant;
    part.former = std::exchange(part.users, {});
  }
  for (const OpId user : part.former) {
    if (!order_.over(user, op)) {
      return "takes a slot of the ring that is used by operation " + std::to_string(user);
    }
  }
  part.users.push_back(op);
  return "";
}

std::string RingCheck::enter(OpId id, bool sums) {
  const Op& op = nth(program_.ops, id);
  const bool in_place =
      op.kind == OpKind::kSumSquares && !grads_from_disk() && !grads_from_device();
  if (program_.chunk_slots == 0 || in_place) return "";
  const Chunk& chunk = nth(program_.chunks, op.chunk);
  const int slot = chunk.slot;
  if (slot < 0 && !chunk.on_disk && !grads_from_disk() && !grads_from_device()) return "";
  if (slot < 0 || slot >= program_.chunk_slots) return "has no slot in the ring";
  const bool brings_grads = op.kind == OpKind::kCopyGrads || op.kind == OpKind::kReadGrads;
  const bool only_grads = brings_grads || op.kind == OpKind::kSumSquares;
  const bool updates = op.kind == OpKind::kUpdate;
  const bool again = op.ahead || op.speculative;
  if (only_grads || (updates && (grads_from_disk() || grads_from_device()))) {
    std::string fault = enter(nth(grads_, slot), id, brings_grads, sums || op.speculative);
    if (only_grads || !fault.empty()) return fault;
  }
  Part& states = nth(states_, slot);
  const bool there = chunk.on_disk && !again && op.chunk < program_.chunks_ahead;
  if (updates && there && states.tenant < 0) states.tenant = 2 * op.chunk;
  // If states are on the host, an update takes the slot for its new weights.
  const bool takes = op.kind == OpKind::kReadStates || !chunk.on_disk;
  return enter(states, id, takes && !there, again);
}

std::string RingCheck::fault_at_end() const {
  for (int c = 0; c < program_.chunks_ahead; ++c) {
    const Chunk& chunk = nth(program_.chunks, c);
    if (!chunk.on_disk) continue;
    const auto slot = static_cast<std::size_t>(chunk.slot);
    if (states_[slot].tenant != 2 * c + 1) return "a chunk is not in the ring for the next step";
  }
  return "";
}

}  // namespace sluice
