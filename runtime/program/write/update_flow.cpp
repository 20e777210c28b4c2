#include "runtime/program/write/update_flow.hpp"

#include <algorithm>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/program/write/arena_plan.hpp"
#include "runtime/program/write/param_window.hpp"
#include "runtime/program/write/step_states.hpp"

namespace sluice {
namespace {

// No slot is larger than the largest chunk.
std::int64_t largest_chunk(const StepShape& shape) {
  std::int64_t largest = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    largest = std::max(largest, off_device_elems(shape, g));
  }
  return std::min(largest, shape.placement.chunk_elems);
}

bool any_param_on(const StepShape& shape, bool host) {
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    if (!is_frozen(shape, g) && (parameter_tier(shape, g) == Tier::kHost) == host) return true;
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

// Of a step's last backwards: the first one beside which nothing more is begun before the norm.
// The last quarter is for reading ahead.
int speculation_end(int backwards) { return std::min(backwards - 1, (3 * backwards + 3) / 4); }

// What the deferred update of a chunk still reads where speculation held: master weights, of which
// the parameters are made that are elsewhere.
std::int64_t kept_read_bytes(const StepShape& shape, int g) {
  return parameter_tier(shape, g) == Tier::kNvme ? 0 : 4;
}

// So many that the disk has as much to do for an unclipped step's forward as for its last backward,
// each by its length.
std::int64_t guessed_elems(const StepShape& shape, const std::vector<Chunk>& chunks) {
  const double backward_to_forward = shape.recompute ? 3 : 2;
  double elems = 0;
  double kept = 0;
  for (const Chunk& chunk : chunks) {
    elems += static_cast<double>(chunk.elems);
    kept += static_cast<double>(chunk.elems * kept_read_bytes(shape, chunk.group));
  }
  if (elems == 0) return 0;
  const auto both_ways = static_cast<double>(2 * away_state_bytes(shape));
  const double saved = both_ways - kept / elems;
  return static_cast<std::int64_t>(elems * backward_to_forward * both_ways /
                                   (both_ways + backward_to_forward * saved));
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
    for (const StateKind moment : rule_of(shape.optimizer).moment_kinds()) {
      layout.moments[moment_index(moment)] = part(size_of(shape.placement.moments_dtype) * elems);
    }
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
  const bool image = shape.placement.image && shape.placement.optimizer == Tier::kNvme;
  builder.program().image = image;
  for (const int g : groups_by_first_use(shape)) {
    const std::int64_t owned = owned_elems(shape, g);
    for (std::int64_t at = owned - off_device_elems(shape, g); at < owned;) {
      const std::int64_t elems = std::min(owned - at, shape.placement.chunk_elems);
      chunks.push_back({.group = g,
                        .begin = at,
                        .elems = elems,
                        .slot = static_cast<int>(chunks.size()) % slots,
                        .second = image});
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
  guess_elems_left_ = speculates() ? guessed_elems(shape, chunks) : 0;
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
  for (const OpId user : users) {
    if (image() && builder_.op(user).lane == Lane::kDisk) uncommitted_.push_back(user);
  }
  if (users.empty()) users.push_back(update);
  state_users(c) = std::move(users);
  grad_users(c) = {update};
}

OpId UpdateFlow::commit() {
  if (!image() || commit_ >= 0) return commit_;
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

std::vector<OpId> UpdateFlow::waits_of_return(int c) {
  std::vector<OpId> waits = state_users(c);
  const OpId written = written_[static_cast<std::size_t>(c)];
  if (std::find(waits.begin(), waits.end(), written) == waits.end()) waits.push_back(written);
  return waits;
}

// A few before each backward, so that what that one needs from the disk is not long behind them.
void UpdateFlow::read_ahead(int done, int backwards) {
  // All under way before the last quarter: what is issued with the last backward ends after it.
  const int ahead = builder_.program().chunks_ahead;
  int due = std::min(ahead, ahead * 4 * (done + 1) / (3 * backwards));
  // Speculation has the ring until then.
  const int first = speculation_end(backwards);
  if (speculates()) due = done < first ? 0 : ahead * (done + 1 - first) / (backwards - first);
  for (; next_ahead_ < due; ++next_ahead_) {
    const int c = next_ahead_;
    const OpId read = emit(OpKind::kReadStates, Lane::kDisk, c, waits_of_return(c),
                           away_state_bytes(shape_) * chunk(c).elems);
    builder_.program().ops[static_cast<std::size_t>(read)].ahead = true;
    state_users(c) = {read};
  }
}

OpId UpdateFlow::emit_guess(OpKind kind, Lane lane, int c, std::vector<OpId> waits,
                            std::int64_t bytes) {
  const OpId id = emit(kind, lane, c, std::move(waits), bytes);
  builder_.program().ops[static_cast<std::size_t>(id)].speculative = true;
  return id;
}

// What is in the ring for the next program is not read twice.
void UpdateFlow::guess(const GradFlow::Summed& summed) {
  const std::vector<Chunk>& chunks = builder_.program().chunks;
  for (int c = builder_.program().chunks_ahead; c < static_cast<int>(chunks.size()); ++c) {
    if (chunk(c).group != summed.group) continue;
    if (chunk(c).elems > guess_elems_left_) return;
    guess_elems_left_ -= chunk(c).elems;
    guesses_.push_back({c, summed.by});
  }
}

void UpdateFlow::speculate(const std::vector<GradFlow::Summed>& summed, int done, int backwards) {
  if (!speculates() || done >= speculation_end(backwards)) return;
  for (const GradFlow::Summed& group : summed) guess(group);
  if (image() && may_overwrite_ < 0) return;
  for (; next_guess_ < guesses_.size(); ++next_guess_) {
    read_guesses();
    update_guess(guesses_[next_guess_]);
  }
}

// As many as the ring has room for.
void UpdateFlow::read_guesses() {
  const auto holds = [this](int slot) {
    return std::any_of(guesses_.begin() + static_cast<std::ptrdiff_t>(next_guess_),
                       guesses_.begin() + static_cast<std::ptrdiff_t>(next_guess_read_),
                       [&](const Guess& guess) { return chunk(guess.chunk).slot == slot; });
  };
  for (; next_guess_read_ < guesses_.size(); ++next_guess_read_) {
    Guess& guess = guesses_[next_guess_read_];
    const int c = guess.chunk;
    if (holds(chunk(c).slot)) return;
    const std::int64_t elems = chunk(c).elems;
    builder_.program().chunks[static_cast<std::size_t>(c)].speculated = true;
    builder_.program().chunks[static_cast<std::size_t>(c)].second = true;
    state_users(c) = {emit_guess(OpKind::kReadStates, Lane::kDisk, c, waits_of_return(c),
                                 away_state_bytes(shape_) * elems)};
    std::vector<OpId> summed = std::exchange(guess.arrivals, state_users(c));
    std::vector<OpId>& users = grad_users(c);
    if (shape_.placement.gradients == Tier::kHost) {
      guess.arrivals.insert(guess.arrivals.end(), summed.begin(), summed.end());
      continue;
    }
    summed.insert(summed.end(), users.begin(), users.end());
    if (shape_.placement.gradients == Tier::kDevice) {
      users = {emit_guess(OpKind::kCopyGrads, Lane::kToHost, c, std::move(summed), 4 * elems)};
    } else {
      const OpId read =
          emit_guess(OpKind::kReadGrads, Lane::kDisk, c, std::move(summed), 4 * elems);
      guess.summed = emit_guess(OpKind::kSumSquares, Lane::kHost, c, {read}, 0);
      users = {guess.summed};
    }
    guess.arrivals.push_back(users.front());
  }
}

void UpdateFlow::update_guess(const Guess& guess) {
  const int c = guess.chunk;
  const int g = chunk(c).group;
  const OpId update = emit_guess(OpKind::kUpdate, Lane::kHost, c, guess.arrivals, 0);
  std::vector<OpId> waits = {update};
  if (image()) waits.push_back(may_overwrite_);
  std::vector<OpId> users = {emit_guess(OpKind::kWriteStates, Lane::kDisk, c, waits,
                                        away_state_bytes(shape_) * chunk(c).elems)};
  if (parameter_tier(shape_, g) == Tier::kNvme && !params_are_master(shape_, g)) {
    users.push_back(emit_guess(OpKind::kWriteParams, Lane::kDisk, c, std::move(waits),
                               size_of(shape_.dtype) * chunk(c).elems));
  }
  state_users(c) = std::move(users);
  grad_users(c) = {update};
}

// The deferred updates of these chunks move what is left to them where speculation holds.
void UpdateFlow::end_speculation() {
  const std::vector<Chunk>& chunks = builder_.program().chunks;
  for (Op& op : builder_.program().ops) {
    if (op.chunk < 0 || op.speculative) continue;
    if (!chunks[static_cast<std::size_t>(op.chunk)].speculated) continue;
    const bool reads = op.kind == OpKind::kReadStates;
    if (reads) op.moved_bytes = kept_read_bytes(shape_, op.group) * chunk(op.chunk).elems;
    if (!reads && op.kind != OpKind::kCopyParams) op.moved_bytes = 0;
  }
}

void UpdateFlow::sum_squares(Op& norm, const GradFlow& grads) {
  for (const Guess& guess : guesses_) {
    if (guess.summed >= 0) norm.waits.push_back(guess.summed);
  }
  for (int c = 0; c < static_cast<int>(builder_.program().chunks.size()); ++c) {
    if (chunk(c).speculated) continue;
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

std::vector<SecondPlace> second_places(std::span<const Chunk> chunks) {
  std::vector<SecondPlace> places;
  for (const Chunk& chunk : chunks) {
    if (!chunk.second) continue;
    if (places.empty() || places.back().group != chunk.group) {
      places.push_back({chunk.group, chunk.begin, 0});
    }
    places.back().elems = chunk.begin + chunk.elems - places.back().begin;
  }
  return places;
}

}  // namespace sluice
