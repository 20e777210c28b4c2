#include "runtime/program/check/grad_check.hpp"

#include <algorithm>
#include <string>

#include "base/index.hpp"

namespace sluice {
namespace {

bool feeds_norm(OpKind kind) {
  return kind == OpKind::kReduceGrads || kind == OpKind::kGatherGrads ||
         kind == OpKind::kStoreGrads || kind == OpKind::kWriteBucket || kind == OpKind::kSumSquares;
}

const std::vector<BucketPiece>& pieces_of(const Program& program, const Op& op) {
  return nth(program.buckets, op.bucket);
}

// Whether the operation reads parameters, or reads or writes gradients, of one of the groups.
bool uses_any(const Program& program, const Op& op, const std::set<int>& groups) {
  const auto among = [&](int g) { return groups.count(g) > 0; };
  const bool whole = op.kind == OpKind::kGather || op.kind == OpKind::kRoundGrads ||
                     op.kind == OpKind::kAddGrads || op.kind == OpKind::kAddReplicas;
  if ((whole && among(op.group)) || std::any_of(op.reads.begin(), op.reads.end(), among) ||
      std::any_of(op.writes.begin(), op.writes.end(), among)) {
    return true;
  }
  if (op.bucket < 0) return false;
  const std::vector<BucketPiece>& pieces = pieces_of(program, op);
  return std::any_of(pieces.begin(), pieces.end(),
                     [&](const BucketPiece& piece) { return among(piece.group); });
}

}  // namespace

GradCheck::GradCheck(const Program& program, FirstFault& fault, SlotCheck& slots,
                     const UnitCheck& units)
    : program_(program), fault_(fault), slots_(slots), units_(units) {
  for (const Op& op : program.ops) on_disk_ = on_disk_ || op.kind == OpKind::kWriteBucket;
  for (const auto& bucket : program.buckets) {
    for (const BucketPiece& piece : bucket) {
      std::int64_t& elems = shard_elems_[piece.group];
      elems = std::max(elems, piece.begin + piece.elems);
    }
  }
}

void GradCheck::enter(const Op& op) {
  // A group that was updated in the backward must not be used again.
  if (!normed_ && uses_any(program_, op, updated_)) fault_.fail("uses a group that was updated");
  for (const int g : op.opens) {
    open(g, std::find(op.writes.begin(), op.writes.end(), g) != op.writes.end());
  }
  for (const int g : op.writes) write(g);
  switch (op.kind) {
    case OpKind::kReduceGrads:
      return reduce(op);
    case OpKind::kRoundGrads:
      return round(op.group);
    case OpKind::kAddGrads:
      return add_streams(op.group);
    case OpKind::kGatherGrads:
      return gather(op);
    case OpKind::kAddReplicas:
      return add_replicas(op.group);
    case OpKind::kNormAndScale:
      return finish_step(op);
    case OpKind::kUpdate:
      if (op.chunk >= 0) return;
      if (!op.in_backward) finish_step(op);
      if (op.in_backward) update_in_backward(op.group);
      if (!updated_.insert(op.group).second) fault_.fail("updates a group a second time");
      return;
    default:
      return;
  }
}

void GradCheck::at_end() {
  if (units_.trains() && !normed_) fault_.fail_whole("a step has no norm");
}

// Opening replaces gradients. The previous ones must have been sent to a reduction completely.
void GradCheck::open(int group, bool writes) {
  if (!writes) fault_.fail("opens gradients that it does not write");
  const bool part = sent_.count(group) > 0 && sent_elems_[group] < shard_elems_[group];
  if (unsent_.count(group) > 0 || part) fault_.fail("replaces gradients that were not sent");
  sent_.erase(group);
  sent_elems_[group] = 0;
  unsent_.insert(group);
}

void GradCheck::write(int group) {
  slots_.need(Tag::kGradientBuckets, group);
  if (unsent_.count(group) == 0) fault_.fail("adds to gradients that nobody opened");
  if (sent_.count(group) > 0) {
    fault_.fail("writes gradients of group " + std::to_string(group) + " that were already sent");
  }
  if (slots_.in_slots(Tag::kGradientBuckets, group)) {
    if (slots_.newest_is_used(Tag::kGradientBuckets, group)) {
      fault_.fail("writes gradients that are being reduced");
    }
    return;
  }
  for (const OpId reduction : reductions_[group]) {
    if (fault_.over(reduction)) continue;
    fault_.fail("writes gradients that operation " + std::to_string(reduction) + " reads");
  }
}

void GradCheck::reduce(const Op& op) {
  if (program_.in_place) fault_.fail("reduces gradients that are the reduced ones");
  for (const BucketPiece& piece : pieces_of(program_, op)) {
    slots_.need(Tag::kGradientBuckets, piece.group);
    if (unsent_.count(piece.group) == 0 && sent_.count(piece.group) == 0) {
      fault_.fail("reduces gradients that were not written");
    }
    unsent_.erase(piece.group);
    sent_.insert(piece.group);
    std::int64_t& sent = sent_elems_[piece.group];
    if (piece.begin != sent) fault_.fail("reduces a shard out of order");
    sent += piece.elems;
    reductions_[piece.group].push_back(fault_.now());
    if (piece.stream > 0 && !on_disk_) apart_.insert(piece.group);
  }
}

void GradCheck::round(int group) {
  slots_.need(Tag::kGradientBuckets, group);
  if (!program_.in_place || !slots_.in_slots(Tag::kGradientBuckets, group)) {
    fault_.fail("rounds gradients that have no slot of their own");
  }
  if (unsent_.erase(group) == 0) fault_.fail("rounds gradients that were not written");
  if (normed_) fault_.fail("rounds gradients behind the norm");
  sent_.insert(group);
}

// `to`: what the operation does to the gradients.
void GradCheck::need_reductions(int group, const char* to) {
  for (const OpId reduction : reductions_[group]) {
    if (!fault_.over(reduction)) fault_.fail(to + std::string(" gradients that are on their way"));
  }
}

void GradCheck::add_streams(int group) {
  if (apart_.erase(group) == 0 || unsent_.count(group) > 0) {
    fault_.fail("adds gradients too early");
  }
  need_reductions(group, "adds");
}

// Must come before the norm, once.
void GradCheck::add_replicas(int group) {
  const bool unsent = !program_.in_place && unsent_.count(group) > 0;
  if (normed_ || apart_.count(group) > 0 || unsent || !replicated_.insert(group).second) {
    fault_.fail("adds gradients of other ranks too early or too late");
  }
  need_reductions(group, "adds");
}

void GradCheck::gather(const Op& op) {
  for (const BucketPiece& piece : pieces_of(program_, op)) {
    if (sent_elems_[piece.group] < piece.begin + piece.elems || apart_.count(piece.group) > 0) {
      fault_.fail("gathers gradients that are not summed");
    }
    reductions_[piece.group].push_back(fault_.now());  // the gather writes the full gradient
    gathered_elems_[piece.group] += piece.elems;
  }
}

// The group's gradients are whole here.
void GradCheck::update_in_backward(int group) {
  if (normed_) fault_.fail("comes after the norm");
  if (program_.in_place) {
    const bool rounded = slots_.in_slots(Tag::kGradientBuckets, group);
    const std::set<int>& made = rounded ? sent_ : unsent_;
    if (made.count(group) == 0) fault_.fail("updates without gradients");
    return;
  }
  const auto sent = sent_elems_.find(group);
  const bool whole = sent != sent_elems_.end() && sent->second == shard_elems_[group] &&
                     unsent_.count(group) == 0 && apart_.count(group) == 0;
  const bool gathered = !program_.whole_groups || gathered_elems_[group] == shard_elems_[group];
  if (!whole || !gathered) fault_.fail("comes before the group's gradients are reduced");
  need_reductions(group, "updates by");
}

void GradCheck::finish_step(const Op& op) {
  if (op.kind == OpKind::kUpdate && !normed_) fault_.fail("comes before the norm");
  normed_ = true;
  if (!units_.all_back()) fault_.fail("comes before a backward");
  if (!apart_.empty()) fault_.fail("comes before a group's gradients are added up");
  if (program_.in_place) {
    for (const int g : unsent_) {
      if (slots_.in_slots(Tag::kGradientBuckets, g)) {
        fault_.fail("comes before a group's gradients are rounded");
      }
    }
  } else {
    const bool whole = std::all_of(sent_.begin(), sent_.end(),
                                   [&](int g) { return sent_elems_[g] == shard_elems_[g]; });
    if (units_.trains() && program_.whole_groups && gathered_elems_ != shard_elems_) {
      fault_.fail("comes before gradients are gathered");
    }
    if (!unsent_.empty() || !whole) fault_.fail("comes before a group's gradients are sent");
  }
  for (OpId i = 0; i < static_cast<OpId>(program_.ops.size()); ++i) {
    if (feeds_norm(nth(program_.ops, i).kind) && !fault_.over(i)) {
      fault_.fail("comes before operation " + std::to_string(i) + " is over");
    }
  }
}

}  // namespace sluice
