#include "runtime/program/check/chunk_check.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/index.hpp"

namespace sluice {
namespace {

bool is_update(const Op& op) { return op.kind == OpKind::kUpdate && op.chunk >= 0; }

}  // namespace

ChunkCheck::ChunkCheck(const Program& program, const OpOrder& order, FirstFault& fault,
                       Touches& touches)
    : program_(program),
      fault_(fault),
      touches_(touches),
      ring_(program, order),
      early_(program, order),
      image_(program, order),
      chunks_(program.chunks.size()) {
  for (const Op& op : program.ops) {
    trains_ = trains_ || !op.writes.empty();
    updates_ = updates_ || !op.writes.empty() || is_update(op);
    if (op.kind == OpKind::kReadShard) params_on_disk_.insert(op.group);
    if (op.kind == OpKind::kWriteParams) written_apart_.insert(op.group);
    if (op.kind == OpKind::kSumSquares) squares_apart_.insert(op.group);
    if (op.kind != OpKind::kWriteBucket) continue;
    for (const BucketPiece& piece : nth(program.buckets, op.bucket)) {
      squares_apart_.insert(piece.group);
    }
  }
  for (std::size_t c = 0; c < program.chunks.size(); ++c) {
    groups_[program.chunks[c].group].chunks.push_back(static_cast<int>(c));
  }
}

void ChunkCheck::enter(const Op& op) {
  fault_.fail(image_.enter(fault_.now()));
  if (op.kind == OpKind::kCommit) {
    commit();
  } else if (op.chunk >= 0) {
    move(op);
  }
}

void ChunkCheck::at_end() {
  for (std::size_t c = 0; updates_ && c < chunks_.size(); ++c) {
    if (chunks_[c].update < 0) fault_.fail_whole("a chunk is never updated");
    if (program_.chunks[c].on_disk && !chunks_[c].written) {
      fault_.fail_whole("a chunk never goes back");
    }
  }
  if (!trains_) return;
  for (const std::string& what :
       {ring_.fault_at_end(), image_.fault_at_end(), early_.fault_at_end()}) {
    fault_.fail_whole(what);
  }
}

void ChunkCheck::read_params(int g, Tier from) {
  touches_.touch({Space::kParams, g, 0}, false);
  const GroupState& group = groups_[g];
  const auto count = static_cast<int>(group.chunks.size());
  if (!updates_ || count == 0) return;
  const int there = from == Tier::kHost     ? group.updates
                    : from == Tier::kDevice ? group.copies
                    : states_are_params(g)  ? group.state_writes
                                            : group.param_writes;
  if (group.updates < count || there < count) {
    fault_.fail("reads parameters of group " + std::to_string(g) + " before they are updated");
  }
}

void ChunkCheck::change_grads(int g) {
  if (early_.taken(g)) fault_.fail("changes gradients that were taken to be whole");
  GroupState& group = groups_[g];
  group.new_grads = true;
  for (const int c : group.chunks) state(c).summed = -1;
}

void ChunkCheck::take_squares() {
  for (const int g : squares_apart_) {
    for (const int c : groups_[g].chunks) {
      const OpId summed = state(c).summed;
      if (summed < 0) return fault_.fail("lacks the squares of a chunk");
      fault_.need(summed, "needs the sum of");
    }
  }
}

void ChunkCheck::touch_run(Space space, const Op& op, bool write) {
  const Chunk& run = nth(program_.chunks, op.chunk);
  touches_.touch({space, op.group, 0}, write, run.begin, run.begin + run.elems);
}

bool ChunkCheck::states_are_params(int g) const {
  return params_on_disk_.count(g) > 0 && written_apart_.count(g) == 0;
}

// A commit reads the current places: no operation may change them until the commit has completed.
void ChunkCheck::commit() {
  for (const auto& [g, group] : groups_) {
    if (group.chunks.empty()) continue;
    touches_.touch({Space::kSecondStates, g, 0}, false);
    if (params_on_disk_.count(g) > 0) touches_.touch({Space::kParams, g, 0}, false);
  }
}

void ChunkCheck::move(const Op& op) {
  ChunkState& chunk = state(op.chunk);
  GroupState& group = groups_[op.group];
  const bool sums =
      op.kind == OpKind::kSumSquares || (op.kind == OpKind::kReadGrads && chunk.update >= 0);
  if (const std::string fault = ring_.enter(fault_.now(), sums); !fault.empty()) {
    return fault_.fail(fault);
  }
  const bool on_disk = nth(program_.chunks, op.chunk).on_disk;
  if (op.kind == OpKind::kReadStates || op.kind == OpKind::kWriteStates) {
    if (!on_disk) return fault_.fail("moves states that are not on NVMe");
    touch_run(image_.in_second_place(op) ? Space::kSecondStates : Space::kStates, op,
              op.kind == OpKind::kWriteStates);
  }
  if (op.kind == OpKind::kUpdate && !on_disk) {
    touch_run(Space::kStates, op, !op.speculative);
    if (op.speculative) touch_run(Space::kSecondStates, op, true);
  }
  if (op.ahead) return come_ahead(op, chunk);
  if (op.speculative) return come_early(op, chunk);
  switch (op.kind) {
    case OpKind::kReadStates:
    case OpKind::kCopyGrads:
    case OpKind::kReadGrads:
      return arrive(op, chunk, group, sums);
    case OpKind::kSumSquares:
      return sum(op, chunk);
    case OpKind::kUpdate:
      return update(op, chunk, group);
    default:
      return depart(op, chunk, group);
  }
}

void ChunkCheck::come_ahead(const Op& op, ChunkState& chunk) {
  if (op.chunk >= program_.chunks_ahead) return fault_.fail("is not awaited by the next step");
  if (!chunk.written) return fault_.fail("comes before its chunk has gone back");
  if (std::exchange(chunk.ahead, true)) fault_.fail("comes twice");
}

void ChunkCheck::come_early(const Op& op, ChunkState& chunk) {
  const bool brings = op.kind == OpKind::kCopyGrads || op.kind == OpKind::kReadGrads;
  const bool in_place = !ring_.grads_from_disk() && !ring_.grads_from_device();
  if (brings || (op.kind == OpKind::kUpdate && in_place)) touches_.touch_grads(op.group, false);
  if (op.kind == OpKind::kSumSquares) chunk.summed = fault_.now();
  if (op.kind == OpKind::kWriteParams) touch_run(Space::kSecondParams, op, true);
  if (op.kind == OpKind::kCopyParams) touch_run(Space::kParams, op, true);
  fault_.fail(early_.enter(fault_.now(), chunk.update, chunk.written));
}

void ChunkCheck::arrive(const Op& op, ChunkState& chunk, const GroupState& group, bool sums) {
  if (op.kind != OpKind::kReadStates) touches_.touch_grads(op.group, false);
  if (sums) {
    chunk.summing = fault_.now();
    return;
  }
  if (chunk.update >= 0) fault_.fail("brings a chunk that was updated");
  if (op.kind != OpKind::kReadStates && group.new_grads) fault_.fail("takes this step's gradients");
  if (brought(chunk, op.kind)) fault_.fail("comes twice");
  chunk.arrivals.push_back(fault_.now());
}

bool ChunkCheck::brought(const ChunkState& chunk, OpKind kind) const {
  return std::any_of(chunk.arrivals.begin(), chunk.arrivals.end(),
                     [&](OpId arrival) { return nth(program_.ops, arrival).kind == kind; });
}

// Gradients on the host are summed where they are.
void ChunkCheck::sum(const Op& op, ChunkState& chunk) {
  if (ring_.grads_from_disk()) {
    if (chunk.summing < 0) return fault_.fail("has no gradients");
    fault_.need(chunk.summing, "sums what is brought by");
  } else {
    touches_.touch_grads(op.group, false);
  }
  chunk.summed = fault_.now();
}

void ChunkCheck::update(const Op& op, ChunkState& chunk, GroupState& group) {
  if (chunk.update >= 0) fault_.fail("updates a chunk twice");
  if (group.new_grads) fault_.fail("comes after this step's gradients");
  for (const OpId arrival : chunk.arrivals) fault_.need(arrival, "updates what is brought by");
  const bool there = op.chunk < program_.chunks_ahead;
  const bool on_disk = nth(program_.chunks, op.chunk).on_disk;
  if (on_disk && !there && !brought(chunk, OpKind::kReadStates)) {
    fault_.fail("lacks its states");
  }
  const bool off_disk = ring_.grads_from_disk();
  if (off_disk && !brought(chunk, OpKind::kReadGrads)) fault_.fail("lacks its gradients");
  const bool off_device = ring_.grads_from_device();
  if (off_device && !brought(chunk, OpKind::kCopyGrads)) fault_.fail("lacks its gradients");
  if (!off_disk && !off_device) touches_.touch_grads(op.group, false);
  chunk.update = fault_.now();
  ++group.updates;
  touch_run(Space::kParams, op, true);
}

void ChunkCheck::depart(const Op& op, ChunkState& chunk, GroupState& group) {
  if (chunk.update < 0) return fault_.fail("takes away a chunk that was not updated");
  fault_.need(chunk.update, "takes away what is updated by");
  if (op.kind == OpKind::kWriteStates) {
    if (std::exchange(chunk.written, true)) fault_.fail("comes twice");
    ++group.state_writes;
  }
  if (op.kind == OpKind::kCopyParams || op.kind == OpKind::kWriteParams) {
    if (std::exchange(chunk.params_sent, true)) fault_.fail("comes twice");
    ++(op.kind == OpKind::kCopyParams ? group.copies : group.param_writes);
  }
  if (op.kind != OpKind::kWriteStates || states_are_params(op.group)) {
    touch_run(Space::kParams, op, true);
  }
}

}  // namespace sluice
