#include "runtime/program/write/update_flow.hpp"

#include <algorithm>
#include <utility>

#include "base/index.hpp"
#include "runtime/program/write/step_states.hpp"

namespace sluice {
namespace {

// The index, in a step's last `backwards`, of the first backward without new speculative updates.
// With states on the disk the last quarter is for reading ahead.
int speculation_end(const ChunkRing& ring, int backwards) {
  return ring.on_disk() ? std::min(backwards - 1, (3 * backwards + 3) / 4) : backwards;
}

}  // namespace

UpdateFlow::UpdateFlow(ProgramBuilder& builder, const StepShape& shape, bool deferred)
    : builder_(builder),
      shape_(shape),
      deferred_(deferred),
      ring_(builder, shape),
      early_(builder, shape, ring_),
      arrivals_(static_cast<std::size_t>(ring_.size())),
      ready_(shape.groups.size()) {}

void UpdateFlow::advance(int g) {
  if (!deferred_) return;
  const int end = ring_.end_of(g);
  while (next_update_ < end) {
    const int turns = ring_.turn(next_update_) + shape_.placement.chunk_slots;
    while (next_read_ < ring_.size() && ring_.turn(next_read_) < turns) read(next_read_++);
    update(next_update_++);
  }
}

void UpdateFlow::read(int c) {
  std::vector<OpId>& arrivals = nth(arrivals_, c);
  const bool in_ring = c < builder_.program().chunks_ahead;
  if (ring_.on_disk(c) && !in_ring) {
    ring_.state_users(c) = {ring_.emit(OpKind::kReadStates, Lane::kDisk, c, ring_.state_users(c),
                                       ring_.state_bytes(c))};
  }
  arrivals = ring_.state_users(c);
  if (shape_.placement.gradients == Tier::kHost) return;
  std::vector<OpId>& users = ring_.grad_users(c);
  const std::int64_t bytes = ring_.gradient_bytes(c);
  if (shape_.placement.gradients == Tier::kDevice) {
    users = {ring_.emit(OpKind::kCopyGrads, Lane::kToHost, c, users, bytes)};
  } else {
    const std::int64_t streams = gradient_streams(shape_, ring_.chunk(c).group);
    users = {ring_.emit(OpKind::kReadGrads, Lane::kDisk, c, users, bytes * streams)};
  }
  arrivals.insert(arrivals.end(), users.begin(), users.end());
}

void UpdateFlow::update(int c) {
  const int g = ring_.chunk(c).group;
  const std::int64_t elems = ring_.chunk(c).elems;
  const OpId update = ring_.emit(OpKind::kUpdate, Lane::kHost, c, nth(arrivals_, c), 0);
  std::vector<OpId> users;
  std::vector<OpId>& ready = nth(ready_, g);
  const bool states_leave = ring_.on_disk(c);
  if (states_leave) {
    users.push_back(
        ring_.emit(OpKind::kWriteStates, Lane::kDisk, c, {update}, ring_.state_bytes(c)));
  }
  ring_.note_written(c, states_leave ? users.back() : update);
  const Tier params = parameter_tier(shape_, g);
  const std::int64_t weight_bytes = size_of(shape_.dtype) * elems;
  if (params_are_master(shape_, g) || params == Tier::kHost) {
    ready.push_back(states_leave && params != Tier::kHost ? users.back() : update);
  } else {
    const bool disk = params == Tier::kNvme;
    users.push_back(ring_.emit(disk ? OpKind::kWriteParams : OpKind::kCopyParams,
                               disk ? Lane::kDisk : Lane::kToDevice, c, {update}, weight_bytes));
    ready.push_back(users.back());
  }
  for (const OpId user : users) {
    if (ring_.image() && builder_.op(user).lane == Lane::kDisk) uncommitted_.push_back(user);
  }
  if (users.empty()) users.push_back(update);
  ring_.state_users(c) = std::move(users);
  ring_.grad_users(c) = {update};
}

OpId UpdateFlow::commit() {
  if (!ring_.image() || commit_ >= 0) return commit_;
  Op op{.kind = OpKind::kCommit, .lane = Lane::kDisk};
  op.waits = std::move(uncommitted_);
  op.moved_bytes = image_bytes(shape_, builder_.program().chunks);
  commit_ = builder_.emit(std::move(op));
  if (shape_.tensor == 1) may_overwrite_ = commit_;
  return commit_;
}

void UpdateFlow::meet() {
  const bool needed = overwrites_early() && shape_.tensor > 1;
  if (!needed || commit_ < 0 || may_overwrite_ >= 0) return;
  Op meet{.kind = OpKind::kMeet, .waits = {commit_}};
  meet.exchanges =
      builder_.exchanges({{.kind = ExchangeKind::kBarrier, .ranks = ExchangeRanks::kWorld}});
  may_overwrite_ = builder_.emit(std::move(meet));
}

// Issues a few reads before each backward, so that the backward's own reads queue behind few.
void UpdateFlow::read_ahead(int done, int backwards) {
  // All reads are issued before the last quarter, because a read that is issued with the last
  // backward completes after that backward.
  const int ahead = builder_.program().chunks_ahead;
  int due = std::min(ahead, ahead * 4 * (done + 1) / (3 * backwards));
  // Speculative updates use the ring until backward `first`.
  const int first = speculation_end(ring_, backwards);
  const int left = backwards - first;
  if (ring_.speculates() && left > 0) due = done < first ? 0 : ahead * (done + 1 - first) / left;
  for (; next_ahead_ < due; ++next_ahead_) {
    const int c = next_ahead_;
    if (!ring_.on_disk(c)) continue;
    const OpId read = ring_.emit(OpKind::kReadStates, Lane::kDisk, c, ring_.waits_of_return(c),
                                 ring_.state_bytes(c));
    nth(builder_.program().ops, read).ahead = true;
    ring_.state_users(c) = {read};
  }
}

void UpdateFlow::speculate(const std::vector<GradFlow::Summed>& summed, int done, int backwards) {
  if (!ring_.speculates() || done >= speculation_end(ring_, backwards)) return;
  for (const GradFlow::Summed& group : summed) early_.select(group);
  if (ring_.image() && may_overwrite_ < 0) return;
  early_.write(ring_.image() ? may_overwrite_ : -1);
}

void UpdateFlow::sum_squares(const std::vector<GradFlow::Summed>& summed) {
  if (shape_.placement.gradients != Tier::kHost || ring_.speculates()) return;
  for (const GradFlow::Summed& group : summed) {
    for (int c = ring_.begin_of(group.group); c < ring_.end_of(group.group); ++c) {
      squares_.push_back(ring_.emit(OpKind::kSumSquares, Lane::kHost, c, group.by, 0));
    }
  }
}

void UpdateFlow::finish(Op& norm, const GradFlow& grads) {
  norm.waits.insert(norm.waits.end(), squares_.begin(), squares_.end());
  if (shape_.placement.gradients != Tier::kNvme) return;
  const std::vector<OpId> early = early_.sums();
  norm.waits.insert(norm.waits.end(), early.begin(), early.end());
  for (int c = 0; c < ring_.size(); ++c) {
    if (ring_.chunk(c).speculated) continue;
    const int g = ring_.chunk(c).group;
    const std::int64_t streams = gradient_streams(shape_, g);
    std::vector<OpId> waits = ring_.grad_users(c);
    const std::vector<OpId> stored = grads.stored(g);
    waits.insert(waits.end(), stored.begin(), stored.end());
    const OpId read = ring_.emit(OpKind::kReadGrads, Lane::kDisk, c, std::move(waits),
                                 ring_.gradient_bytes(c) * streams);
    const OpId sum = ring_.emit(OpKind::kSumSquares, Lane::kHost, c, {read}, 0);
    ring_.grad_users(c) = {sum};
    norm.waits.push_back(sum);
  }
}

}  // namespace sluice
