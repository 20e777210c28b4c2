#include "runtime/program/update_flow.hpp"

#include <algorithm>

#include "kernels/base/bytes.hpp"
#include "kernels/base/error.hpp"
#include "runtime/program/arena_plan.hpp"
#include "runtime/program/grad_flow.hpp"
#include "runtime/program/param_window.hpp"

namespace sluice {
namespace {

// No slot is larger than the largest chunk.
std::int64_t largest_chunk(const StepShape& shape) {
  std::int64_t largest = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    largest = std::max(largest, owned_elems(shape, g) - device_elems(shape, g));
  }
  return std::min(largest, shape.placement.chunk_elems);
}

bool any_param_on(const StepShape& shape, bool host) {
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    if ((parameter_tier(shape, g) == Tier::kHost) == host) return true;
  }
  return false;
}

int most_streams(const StepShape& shape) {
  int most = 1;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    most = std::max(most, gradient_streams(shape, g));
  }
  return most;
}

}  // namespace

ChunkLayout chunk_layout(const StepShape& shape) {
  ChunkLayout layout;
  if (shape.placement.optimizer == Tier::kDevice) return layout;
  const std::int64_t elems = largest_chunk(shape);
  const auto part = [&](std::int64_t bytes) {
    const std::int64_t offset = layout.bytes;
    layout.bytes += round_up(bytes, kHostAlignBytes);
    return offset;
  };
  if (shape.placement.optimizer == Tier::kNvme) {
    layout.master = part(4 * elems);
    layout.moment1 = part(size_of(shape.placement.moments_dtype) * elems);
    layout.moment2 = part(size_of(shape.placement.moments_dtype) * elems);
  }
  if (shape.dtype != DType::kFloat32 && any_param_on(shape, false)) {
    layout.weights = part(size_of(shape.dtype) * elems);
  }
  if (shape.placement.gradients != Tier::kHost) {
    layout.grad_stride = round_up(4 * elems, kHostAlignBytes);
    const int streams = shape.placement.gradients == Tier::kNvme ? most_streams(shape) : 1;
    layout.grads = part(layout.grad_stride * streams);
  }
  return layout;
}

UpdateFlow::UpdateFlow(ProgramBuilder& builder, const StepShape& shape, bool deferred)
    : builder_(builder),
      shape_(shape),
      deferred_(deferred),
      last_chunk_(shape.groups.size(), 0),
      ready_(shape.groups.size()) {
  if (shape.placement.optimizer == Tier::kDevice) return;
  const int slots = shape.placement.chunk_slots;
  check(slots > 0 && shape.placement.chunk_elems > 0, "the ring of chunks has slots");
  std::vector<Chunk>& chunks = builder.program().chunks;
  for (const int g : groups_by_first_use(shape)) {
    const std::int64_t owned = owned_elems(shape, g);
    for (std::int64_t at = device_elems(shape, g); at < owned;) {
      const std::int64_t elems = std::min(owned - at, shape.placement.chunk_elems);
      chunks.push_back({g, at, elems, static_cast<int>(chunks.size()) % slots});
      at += elems;
    }
    last_chunk_[static_cast<std::size_t>(g)] = static_cast<int>(chunks.size());
  }
  builder.program().chunk_slots = chunk_layout(shape).bytes > 0 ? slots : 0;
  if (shape.placement.optimizer == Tier::kNvme) {
    builder.program().chunks_ahead = std::min(slots, static_cast<int>(chunks.size()));
  }
  arrivals_.resize(chunks.size());
  written_.resize(chunks.size(), -1);
  state_users_.resize(static_cast<std::size_t>(slots));
  grad_users_.resize(static_cast<std::size_t>(slots));
}

const Chunk& UpdateFlow::chunk(int c) const {
  return builder_.program().chunks[static_cast<std::size_t>(c)];
}

std::vector<OpId>& UpdateFlow::state_users(int c) {
  return state_users_[static_cast<std::size_t>(chunk(c).slot)];
}
std::vector<OpId>& UpdateFlow::grad_users(int c) {
  return grad_users_[static_cast<std::size_t>(chunk(c).slot)];
}

OpId UpdateFlow::emit(OpKind kind, Lane lane, int c, std::vector<OpId> waits, std::int64_t bytes) {
  Op op{.kind = kind, .lane = lane, .group = chunk(c).group, .chunk = c};
  op.waits = std::move(waits);
  op.moved_bytes = bytes;
  return builder_.emit(std::move(op));
}

void UpdateFlow::advance(int g) {
  if (!deferred_) return;
  const int end = last_chunk_[static_cast<std::size_t>(g)];
  const auto chunks = static_cast<int>(builder_.program().chunks.size());
  while (next_update_ < end) {
    const int ahead = std::min(chunks, next_update_ + shape_.placement.chunk_slots);
    while (next_read_ < ahead) read(next_read_++);
    update(next_update_++);
  }
}

void UpdateFlow::read(int c) {
  std::vector<OpId>& arrivals = arrivals_[static_cast<std::size_t>(c)];
  const std::int64_t elems = chunk(c).elems;
  const bool in_ring = c < builder_.program().chunks_ahead;
  if (shape_.placement.optimizer == Tier::kNvme && !in_ring) {
    state_users(c) = {emit(OpKind::kReadStates, Lane::kDisk, c, state_users(c),
                           away_state_bytes(shape_) * elems)};
  }
  arrivals = state_users(c);
  if (shape_.placement.gradients == Tier::kHost) return;
  std::vector<OpId>& users = grad_users(c);
  if (shape_.placement.gradients == Tier::kDevice) {
    users = {emit(OpKind::kCopyGrads, Lane::kToHost, c, users, 4 * elems)};
  } else {
    const int streams = gradient_streams(shape_, chunk(c).group);
    users = {emit(OpKind::kReadGrads, Lane::kDisk, c, users, 4 * elems * streams)};
  }
  arrivals.insert(arrivals.end(), users.begin(), users.end());
}

void UpdateFlow::update(int c) {
  const int g = chunk(c).group;
  const std::int64_t elems = chunk(c).elems;
  const OpId update =
      emit(OpKind::kUpdate, Lane::kHost, c, arrivals_[static_cast<std::size_t>(c)], 0);
  std::vector<OpId> users;
  std::vector<OpId>& ready = ready_[static_cast<std::size_t>(g)];
  const bool states_leave = shape_.placement.optimizer == Tier::kNvme;
  if (states_leave) {
    users.push_back(
        emit(OpKind::kWriteStates, Lane::kDisk, c, {update}, away_state_bytes(shape_) * elems));
    written_[static_cast<std::size_t>(c)] = users.back();
  }
  const Tier params = parameter_tier(shape_, g);
  const std::int64_t weight_bytes = size_of(shape_.dtype) * elems;
  if (params_are_master(shape_, g) || params == Tier::kHost) {
    ready.push_back(states_leave && params != Tier::kHost ? users.back() : update);
  } else {
    const bool disk = params == Tier::kNvme;
    users.push_back(emit(disk ? OpKind::kWriteParams : OpKind::kCopyParams,
                         disk ? Lane::kDisk : Lane::kToDevice, c, {update}, weight_bytes));
    ready.push_back(users.back());
  }
  if (users.empty()) users.push_back(update);
  state_users(c) = std::move(users);
  grad_users(c) = {update};
}

// A few before each backward, so that what that one needs from the disk is not long behind them.
void UpdateFlow::read_ahead(int done, int backwards) {
  // All under way before the last quarter: what is issued with the last backward ends after it.
  const int ahead = builder_.program().chunks_ahead;
  const int due = std::min(ahead, ahead * 4 * (done + 1) / (3 * backwards));
  for (; next_ahead_ < due; ++next_ahead_) {
    const int c = next_ahead_;
    std::vector<OpId> waits = state_users(c);
    const OpId written = written_[static_cast<std::size_t>(c)];
    if (std::find(waits.begin(), waits.end(), written) == waits.end()) waits.push_back(written);
    const OpId read = emit(OpKind::kReadStates, Lane::kDisk, c, std::move(waits),
                           away_state_bytes(shape_) * chunk(c).elems);
    builder_.program().ops[static_cast<std::size_t>(read)].ahead = true;
    state_users(c) = {read};
  }
}

void UpdateFlow::sum_squares(Op& norm, const GradFlow& grads) {
  for (int c = 0; c < static_cast<int>(builder_.program().chunks.size()); ++c) {
    const int streams = gradient_streams(shape_, chunk(c).group);
    std::vector<OpId> waits = grad_users(c);
    const std::vector<OpId> stored = grads.stored(chunk(c).group);
    waits.insert(waits.end(), stored.begin(), stored.end());
    const OpId read =
        emit(OpKind::kReadGrads, Lane::kDisk, c, std::move(waits), 4 * chunk(c).elems * streams);
    const OpId sum = emit(OpKind::kSumSquares, Lane::kHost, c, {read}, 0);
    grad_users(c) = {sum};
    norm.waits.push_back(sum);
  }
}

}  // namespace sluice
