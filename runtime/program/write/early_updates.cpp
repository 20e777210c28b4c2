#include "runtime/program/write/early_updates.hpp"

#include <algorithm>
#include <utility>

#include "base/index.hpp"

namespace sluice {
namespace {

// On NVMe: bytes per element that a chunk's deferred update reads from the disk if its speculative
// update was kept: the master weights, unless the parameters are written already.
std::int64_t kept_read_bytes(const StepShape& shape, int g) {
  return writes_params_early(shape, g) || keeps_remainders(shape, g) ? 0 : 4;
}

double backward_to_forward(const StepShape& shape) { return shape.recompute ? 3 : 2; }

// Number of elements to update early on the host, so that the host is equally busy during the last
// backward and during the next forward. With more early updates, the updates of the first units
// finish too late for the next forward.
std::int64_t balanced_on_host(const StepShape& shape, const std::vector<Chunk>& chunks) {
  double elems = 0;
  for (const Chunk& chunk : chunks) elems += static_cast<double>(chunk.elems);
  const double ratio = backward_to_forward(shape);
  return static_cast<std::int64_t>(elems * ratio / (ratio + kUpdateElsewhere));
}

// On NVMe: the same of the load of the disk.
std::int64_t balanced_on_nvme(const StepShape& shape, const std::vector<Chunk>& chunks) {
  const double ratio = backward_to_forward(shape);
  double elems = 0;
  double moved = 0;  // bytes both ways
  double kept = 0;
  for (const Chunk& chunk : chunks) {
    if (!chunk.on_disk) continue;
    elems += static_cast<double>(chunk.elems);
    moved += static_cast<double>(chunk.elems * 2 * away_state_bytes(shape, chunk.group));
    kept += static_cast<double>(chunk.elems * kept_read_bytes(shape, chunk.group));
  }
  if (elems == 0) return 0;
  return static_cast<std::int64_t>(elems * ratio * moved / (moved + ratio * (moved - kept)));
}

// Bytes on the host of an element's second place.
std::int64_t second_host_bytes(const StepShape& shape, int g) {
  const bool states = shape.placement.optimizer == Tier::kHost;
  const bool params = keeps_remainders(shape, g);
  return (states ? away_state_bytes(shape, g) : 0) + (params ? size_of(shape.dtype) : 0);
}

// The number of elements to update speculatively.
std::int64_t early_elems(const StepShape& shape, const std::vector<Chunk>& chunks) {
  std::int64_t bytes = 0;
  for (const Chunk& chunk : chunks) bytes = std::max(bytes, second_host_bytes(shape, chunk.group));
  const std::int64_t room =
      shape.placement.speculation_room_bytes / std::max<std::int64_t>(bytes, 1);
  const bool on_host = shape.placement.optimizer == Tier::kHost;
  return std::min(room,
                  on_host ? balanced_on_host(shape, chunks) : balanced_on_nvme(shape, chunks));
}

// Whether the group's gradients can be complete before the step's last backward, which is that of
// the first unit.
bool may_be_early(const StepShape& shape, int g) {
  const std::vector<int>& last = shape.units.front().groups;
  return may_speculate(shape, g) && std::find(last.begin(), last.end(), g) == last.end();
}

}  // namespace

bool has_second_places_on_host(const StepShape& shape) {
  bool any = false;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    any = any || (may_speculate(shape, g) && second_host_bytes(shape, g) > 0);
  }
  return any && shape.placement.speculate;
}

EarlyUpdates::EarlyUpdates(ProgramBuilder& builder, const StepShape& shape, ChunkRing& ring)
    : builder_(builder),
      shape_(shape),
      ring_(ring),
      most_elems_(ring.speculates() ? early_elems(shape, builder.program().chunks) : 0) {
  for (const Chunk& chunk : builder.program().chunks) {
    if (may_be_early(shape, chunk.group)) elems_ += chunk.elems;
  }
}

OpId EarlyUpdates::emit(OpKind kind, Lane lane, int c, std::vector<OpId> waits,
                        std::int64_t bytes) {
  const OpId id = ring_.emit(kind, lane, c, std::move(waits), bytes);
  nth(builder_.program().ops, id).speculative = true;
  return id;
}

// Skips the first chunks: they stay in the ring for the next program and are not read twice.
void EarlyUpdates::select(const GradFlow::Summed& summed) {
  if (!may_be_early(shape_, summed.group)) return;
  const int begin = ring_.begin_of(summed.group);
  const int end = ring_.end_of(summed.group);
  for (int c = begin; c < end; ++c) elems_seen_ += ring_.chunk(c).elems;
  const double share = static_cast<double>(most_elems_) / static_cast<double>(elems_);
  const double due = std::min(share, 1.0) * static_cast<double>(elems_seen_);
  for (int c = std::max(begin, builder_.program().chunks_ahead); c < end; ++c) {
    const std::int64_t elems = ring_.chunk(c).elems;
    const bool is_due = static_cast<double>(elems_taken_) < due;
    if (!is_due || elems_taken_ + elems > most_elems_) return;
    elems_taken_ += elems;
    selected_.push_back({c, summed.by});
  }
}

void EarlyUpdates::write(OpId may_overwrite) {
  for (; next_update_ < selected_.size(); ++next_update_) {
    read_some();
    update(selected_[next_update_], may_overwrite);
  }
}

// Reads ahead as many chunks as have distinct slots.
void EarlyUpdates::read_some() {
  const auto is_taken = [this](int slot) {
    return std::any_of(selected_.begin() + static_cast<std::ptrdiff_t>(next_update_),
                       selected_.begin() + static_cast<std::ptrdiff_t>(next_read_),
                       [&](const Early& early) { return ring_.chunk(early.chunk).slot == slot; });
  };
  for (; next_read_ < selected_.size(); ++next_read_) {
    Early& early = selected_[next_read_];
    if (is_taken(ring_.chunk(early.chunk).slot)) return;
    read(early);
  }
}

void EarlyUpdates::read(Early& early) {
  const int c = early.chunk;
  const std::int64_t bytes = ring_.gradient_bytes(c);
  Chunk& chunk = nth(builder_.program().chunks, c);
  chunk.speculated = true;
  chunk.second = true;
  std::vector<OpId> states = ring_.waits_of_return(c);
  if (ring_.on_disk()) {
    ring_.state_users(c) = {
        emit(OpKind::kReadStates, Lane::kDisk, c, std::move(states), ring_.state_bytes(c))};
    states = ring_.state_users(c);
  }
  std::vector<OpId> summed = std::exchange(early.arrivals, std::move(states));
  std::vector<OpId>& users = ring_.grad_users(c);
  if (shape_.placement.gradients == Tier::kHost) {
    early.arrivals.insert(early.arrivals.end(), summed.begin(), summed.end());
    return;
  }
  summed.insert(summed.end(), users.begin(), users.end());
  if (shape_.placement.gradients == Tier::kDevice) {
    users = {emit(OpKind::kCopyGrads, Lane::kToHost, c, std::move(summed), bytes)};
  } else {
    const OpId read = emit(OpKind::kReadGrads, Lane::kDisk, c, std::move(summed), bytes);
    early.summed = emit(OpKind::kSumSquares, Lane::kHost, c, {read}, 0);
    users = {early.summed};
  }
  early.arrivals.push_back(users.front());
}

void EarlyUpdates::update(const Early& early, OpId may_overwrite) {
  const int c = early.chunk;
  const int g = ring_.chunk(c).group;
  const OpId update = emit(OpKind::kUpdate, Lane::kHost, c, early.arrivals, 0);
  std::vector<OpId> waits = {update};
  if (may_overwrite >= 0) waits.push_back(may_overwrite);
  std::vector<OpId> users;
  if (ring_.on_disk()) {
    users.push_back(emit(OpKind::kWriteStates, Lane::kDisk, c, waits, ring_.state_bytes(c)));
  }
  const std::int64_t weight_bytes = size_of(shape_.dtype) * ring_.chunk(c).elems;
  if (replaces_params_early(shape_, g)) {
    users.push_back(emit(OpKind::kCopyParams, Lane::kToDevice, c, {update}, weight_bytes));
  } else if (has_second_params(shape_, g) && !params_are_master(shape_, g)) {
    users.push_back(emit(OpKind::kWriteParams, Lane::kDisk, c, std::move(waits), weight_bytes));
  }
  if (users.empty()) users.push_back(update);
  ring_.state_users(c) = std::move(users);
  ring_.grad_users(c) = {update};
}

void EarlyUpdates::end() {
  for (Op& op : builder_.program().ops) {
    if (op.chunk < 0 || op.speculative || !ring_.chunk(op.chunk).speculated) continue;
    const bool reads = op.kind == OpKind::kReadStates;
    if (reads) op.moved_bytes = kept_read_bytes(shape_, op.group) * ring_.chunk(op.chunk).elems;
    const bool moves_params = (op.kind == OpKind::kCopyParams || op.kind == OpKind::kWriteParams) &&
                              !writes_params_early(shape_, op.group);
    if (!reads && !moves_params) op.moved_bytes = 0;
  }
}

std::vector<OpId> EarlyUpdates::sums() const {
  std::vector<OpId> ops;
  for (const Early& early : selected_) {
    if (early.summed >= 0) ops.push_back(early.summed);
  }
  return ops;
}

}  // namespace sluice
