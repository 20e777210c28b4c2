#include "runtime/program/write/chunk_ring.hpp"

#include <algorithm>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/program/write/arena_plan.hpp"
#include "runtime/program/write/param_window.hpp"

namespace sluice {
namespace {

// Elements of the largest chunk, which every slot of the ring can hold.
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

}  // namespace

ChunkRing::ChunkRing(ProgramBuilder& builder, const StepShape& shape)
    : builder_(builder),
      shape_(shape),
      begins_(shape.groups.size(), 0),
      ends_(shape.groups.size(), 0) {
  const Placement& placement = shape.placement;
  if (placement.optimizer == Tier::kDevice) return;
  const int slots = placement.chunk_slots;
  const ChunkLayout layout = chunk_layout(shape);
  check(slots > 0 && placement.chunk_elems > 0, "the ring of chunks has slots");
  Program& program = builder.program();
  program.image = keeps_image(placement);
  int turn = 0;
  for (const int g : groups_by_first_use(shape)) {
    const std::int64_t owned = owned_elems(shape, g);
    nth(begins_, g) = static_cast<int>(program.chunks.size());
    const bool on_disk = optimizer_tier(shape, g) == Tier::kNvme;
    // With the optimizer on NVMe, a chunk whose states are on the host needs a ring slot only to
    // stage weights or gradients. Such chunks share the ring with the NVMe chunks.
    const bool in_ring =
        on_disk || placement.optimizer == Tier::kHost || layout.weights >= 0 || layout.grads >= 0;
    for (std::int64_t at = owned - off_device_elems(shape, g); at < owned;) {
      const std::int64_t elems = std::min(owned - at, placement.chunk_elems);
      program.chunks.push_back({.group = g,
                                .begin = at,
                                .elems = elems,
                                .slot = in_ring ? turn % slots : -1,
                                .second = program.image,
                                .on_disk = on_disk});
      turns_.push_back(turn);
      turn += in_ring ? 1 : 0;
      at += elems;
    }
    nth(ends_, g) = static_cast<int>(program.chunks.size());
  }
  program.chunk_slots = layout.bytes > 0 ? slots : 0;
  if (placement.optimizer == Tier::kNvme) {
    const auto later = std::lower_bound(turns_.begin(), turns_.end(), slots);
    program.chunks_ahead = static_cast<int>(later - turns_.begin());
  }
  written_.resize(program.chunks.size(), -1);
  state_users_.resize(static_cast<std::size_t>(slots) + program.chunks.size());
  grad_users_.resize(state_users_.size());
}

const Chunk& ChunkRing::chunk(int c) const { return nth(builder_.program().chunks, c); }

std::int64_t ChunkRing::state_bytes(int c) const {
  return away_state_bytes(shape_, chunk(c).group) * chunk(c).elems;
}

std::int64_t ChunkRing::gradient_bytes(int c) const {
  return sluice::gradient_bytes(shape_, chunk(c).group, chunk(c).elems);
}

OpId ChunkRing::emit(OpKind kind, Lane lane, int c, std::vector<OpId> waits, std::int64_t bytes) {
  Op op{.kind = kind, .lane = lane, .group = chunk(c).group, .chunk = c};
  op.waits = std::move(waits);
  op.moved_bytes = bytes;
  return builder_.emit(std::move(op));
}

int ChunkRing::place_of(int c) const {
  return chunk(c).slot >= 0 ? chunk(c).slot : shape_.placement.chunk_slots + c;
}

std::vector<OpId>& ChunkRing::state_users(int c) { return nth(state_users_, place_of(c)); }
std::vector<OpId>& ChunkRing::grad_users(int c) { return nth(grad_users_, place_of(c)); }

std::vector<OpId> ChunkRing::waits_of_return(int c) {
  std::vector<OpId> waits = state_users(c);
  const OpId written = nth(written_, c);
  if (std::find(waits.begin(), waits.end(), written) == waits.end()) waits.push_back(written);
  return waits;
}

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
    const bool on_nvme = shape.placement.gradients == Tier::kNvme;
    const DType dtype = on_nvme ? shape.placement.gradients_dtype : DType::kFloat32;
    layout.grad_stride = round_up(size_of(dtype) * elems, kHostAlignBytes);
    const int streams = on_nvme ? most_streams(shape) : 1;
    layout.grads = part(layout.grad_stride * streams);
  }
  return layout;
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
