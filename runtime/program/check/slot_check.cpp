#include "runtime/program/check/slot_check.hpp"

#include <algorithm>
#include <string>

#include "base/index.hpp"

namespace sluice {
namespace {

bool is_device_update(const Op& op) { return op.kind == OpKind::kUpdate && op.chunk < 0; }

}  // namespace

SlotCheck::SlotCheck(const Program& program, FirstFault& fault)
    : program_(program), fault_(fault), life_(program.buffers.size(), Life::kNotYet) {
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kRoundGrads) rounded_.insert(op.group);
    if (op.kind != OpKind::kGather) continue;
    gathered_.emplace(op.group, -1);
    sends_parameters_ = sends_parameters_ || op.wire_bytes > 0;
  }
  for (BufferId b = 0; b < static_cast<BufferId>(program.buffers.size()); ++b) {
    const Buffer& here = buffer(b);
    if (here.in_arena && here.group >= 0) slotted_.insert({here.tag, here.group});
    if (here.tag == Tag::kGradients) passing_.push_back(b);
  }
}

void SlotCheck::begin(const Op& op) {
  for (const BufferId b : op.dead_before) die(b);
  for (const BufferId b : op.live) live(b);
  use(op);
  read_params(op);
  need_passing(op);
}

// After the backward a GPU updates all other groups in the last of a row of updates.
void SlotCheck::need_passing(const Op& op) {
  const bool updates = is_device_update(op);
  const bool all = op.kind == OpKind::kNormAndScale || op.kind == OpKind::kAddReplicas ||
                   (updates && !op.in_backward);
  const bool rounds = op.kind == OpKind::kRoundGrads;
  if (!all && !updates && !rounds && op.writes.empty() && op.bucket < 0) return;
  for (const BufferId b : passing_) {
    const int group = buffer(b).group;
    // Gradients in a slot are rounded to this memory later.
    const bool writes = !rounded_.contains(group) &&
                        std::find(op.writes.begin(), op.writes.end(), group) != op.writes.end();
    const bool needs =
        (all && updated_.count(group) == 0) || ((updates || rounds) && op.group == group);
    if ((needs || writes || has_piece(op, group)) && nth(life_, b) != Life::kAlive) {
      fault_.fail("needs memory of the gradients of group " + std::to_string(group) +
                  ", which are not alive");
    }
  }
  if (op.in_backward) updated_.insert(op.group);
}

bool SlotCheck::has_piece(const Op& op, int group) const {
  if (op.bucket < 0) return false;
  const auto& pieces = nth(program_.buckets, op.bucket);
  return std::any_of(pieces.begin(), pieces.end(),
                     [&](const BucketPiece& piece) { return piece.group == group; });
}

void SlotCheck::end(const Op& op) {
  for (const BufferId b : op.dead_after) die(b);
}

void SlotCheck::at_end() {
  for (std::size_t b = 0; b < life_.size(); ++b) {
    if (life_[b] == Life::kDead) continue;
    fault_.fail_whole("buffer " + std::to_string(b) + " never lives or never dies");
  }
}

void SlotCheck::live(BufferId b) {
  Life& life = nth(life_, b);
  if (life != Life::kNotYet) fault_.fail("revives buffer " + std::to_string(b));
  life = Life::kAlive;
  if (!buffer(b).in_arena) return;
  take_room(b);
  slots_.insert(b);
  newest_[{buffer(b).tag, buffer(b).group}] = b;
}

void SlotCheck::take_room(BufferId b) {
  const Buffer& here = buffer(b);
  const std::int64_t arena =
      here.tier == Tier::kDevice ? program_.arena_bytes : program_.host_arena_bytes;
  if (here.arena_offset < 0 || here.arena_offset + here.bytes > arena) {
    fault_.fail("has a slot outside the arena");
  }
  for (const BufferId other : slots_) {
    const Buffer& there = buffer(other);
    if (here.tier == there.tier && here.arena_offset < there.arena_offset + there.bytes &&
        there.arena_offset < here.arena_offset + here.bytes) {
      fault_.fail("overwrites a living slot");
    }
    // A gradient slot that is being reduced may coexist with the group's next slot.
    if (here.group >= 0 && here.group == there.group && here.tag == there.tag &&
        (here.tag != Tag::kGradientBuckets || users_[other].empty())) {
      fault_.fail("gives group " + std::to_string(here.group) + " a second slot");
    }
  }
}

void SlotCheck::die(BufferId b) {
  Life& life = nth(life_, b);
  if (life != Life::kAlive) {
    fault_.fail("kills buffer " + std::to_string(b) + ", which is not alive");
  }
  life = Life::kDead;
  slots_.erase(b);
  if (buffer(b).tag == Tag::kGradientBuckets && users_[b].empty()) {
    fault_.fail("frees gradients that were not reduced");
  }
  for (const OpId user : users_[b]) {
    const bool over = user == fault_.now() || fault_.over(user);
    if (!over) fault_.fail("frees what operation " + std::to_string(user) + " uses");
  }
}

void SlotCheck::use(const Op& op) {
  if (is_device_update(op)) {
    const auto gather = gathered_.find(op.group);
    if (gather != gathered_.end() && gather->second >= 0 && !fault_.over(gather->second)) {
      fault_.fail("updates parameters that are being gathered");
    }
  }
  const bool works = op.kind == OpKind::kGather || op.kind == OpKind::kRoundGrads;
  if (op.lane == Lane::kCompute && !works) return;
  for (const BufferId b : {op.device_slot, op.host_slot}) {
    if (b < 0) continue;
    if (nth(life_, b) != Life::kAlive) {
      fault_.fail("works on a buffer that is not alive");
    }
    users_[b].push_back(fault_.now());
  }
  for (const BufferId b : slots_) {
    if (works_on(op, b)) users_[b].push_back(fault_.now());
  }
  if (op.kind == OpKind::kGather) {
    need(Tag::kGatheredParameters, op.group);
    gathered_[op.group] = fault_.now();
  }
}

// A gather writes the slot of its group. A reduction reads the slots of its pieces' groups, a
// rounding that of its group.
bool SlotCheck::works_on(const Op& op, BufferId b) const {
  const Buffer& slot = buffer(b);
  if (slot.tag == Tag::kGatheredParameters) {
    return op.kind == OpKind::kGather && slot.group == op.group;
  }
  if (slot.tag != Tag::kGradientBuckets || newest_.at({slot.tag, slot.group}) != b) return false;
  return has_piece(op, slot.group) || (op.kind == OpKind::kRoundGrads && op.group == slot.group);
}

void SlotCheck::need(Tag tag, int group) {
  if (!in_slots(tag, group)) return;
  const auto slot = newest_.find({tag, group});
  if (slot == newest_.end() || slots_.count(slot->second) == 0) {
    fault_.fail("needs a slot for group " + std::to_string(group) + ", which has none");
  }
}

bool SlotCheck::newest_is_used(Tag tag, int group) const {
  const auto slot = newest_.find({tag, group});
  if (slot == newest_.end()) return false;
  const auto users = users_.find(slot->second);
  return users != users_.end() && !users->second.empty();
}

void SlotCheck::read_params(const Op& op) {
  for (const int g : op.reads) {
    need(Tag::kGatheredParameters, g);
    const auto gather = gathered_.find(g);
    if (gather == gathered_.end() && !sends_parameters_) continue;
    if (gather == gathered_.end() || gather->second < 0 || !fault_.over(gather->second)) {
      fault_.fail("reads parameters of group " + std::to_string(g) + ", which have not arrived");
    }
  }
}

}  // namespace sluice
