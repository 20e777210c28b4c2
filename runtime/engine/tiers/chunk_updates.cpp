#include "runtime/engine/tiers/chunk_updates.hpp"

#include <algorithm>

#include "base/all_of.hpp"
#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/index.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/reduce.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice {
namespace {

// issue(row, offset in the slot) for the master weights, or remainders, and each moment.
template <class Issue>
Ticket for_states(OptimizerType type, const OffDeviceGroup& g, const ChunkLayout& layout,
                  const Issue& issue) {
  return issue_all(1 + rule_of(type).moments, [&](std::size_t i) {
    return i == 0 ? issue(g.master_or_remainders(), layout.master)
                  : issue(g.moments[i - 1], layout.moments[i - 1]);
  });
}

}  // namespace

ChunkUpdates::ChunkUpdates(ShardStore& store, DeviceCopies& device, const StepShape& shape,
                           const OptimizerOptions& optimizer,
                           std::span<const OffDeviceGroup> groups, const Program& train)
    : store_(store),
      device_(device),
      shape_(shape),
      optimizer_(optimizer),
      memory_(store, shape, groups),
      early_(groups.size()),
      sums_squares_(groups.size()),
      block_sums_(groups.size()) {
  for (const Chunk& chunk : train.chunks) {
    if (!chunk.speculated) continue;
    Early& early = nth(early_, chunk.group);
    if (early.updated.empty()) early.begin = chunk.begin;
    early.chunk_elems = shape.placement.chunk_elems;
    early.updated.push_back(0);
  }
  for (Early& early : early_) early.kept.resize(early.updated.size());
  for (const Op& op : train.ops) {
    if (op.kind == OpKind::kSumSquares) nth(sums_squares_, op.group) = 1;
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (sums_squares_[g] == 0) continue;
    const std::int64_t owned = owned_elems(shape, static_cast<int>(g));
    block_sums_[g].resize(
        static_cast<std::size_t>((owned + kChunkAlignElems - 1) / kChunkAlignElems));
  }
}

// The chunks that speculation has updated change places. With an image, all do that this program
// updates.
void ChunkUpdates::set_update(const UpdateArgs* args, bool kept) {
  update_ = args;
  const bool swaps = args != nullptr && (kept || store_.keeps_image());
  if (swaps && !on_host()) store_.swap_places();
  for (std::size_t g = 0; g < early_.size(); ++g) {
    Early& early = early_[g];
    for (std::size_t c = 0; c < early.kept.size(); ++c) {
      early.kept[c] = kept ? early.updated[c] : 0;
      if (early.kept[c] == 0 || !on_host()) continue;
      const std::int64_t begin = early.begin + static_cast<std::int64_t>(c) * early.chunk_elems;
      store_.swap_place(static_cast<int>(g), begin - device_elems(shape_, static_cast<int>(g)));
    }
  }
}

// On NVMe every chunk is updated in time: the step waits for the disk in any case.
void ChunkUpdates::set_speculation(const UpdateArgs* args) {
  speculation_ = args;
  backward_ended_ = false;
  if (args == nullptr) return;
  const char in_time = on_host() ? 0 : 1;
  for (Early& early : early_) std::fill(early.updated.begin(), early.updated.end(), in_time);
}

std::int64_t ChunkUpdates::updated_early() const {
  std::int64_t chunks = 0;
  for (const Early& early : early_) {
    chunks += std::count(early.updated.begin(), early.updated.end(), char{1});
  }
  return chunks;
}

bool ChunkUpdates::replaced_params() const {
  for (std::size_t g = 0; g < early_.size(); ++g) {
    const std::vector<char>& updated = early_[g].updated;
    const bool some = std::find(updated.begin(), updated.end(), char{1}) != updated.end();
    if (some && replaces_params_early(shape_, static_cast<int>(g))) return true;
  }
  return false;
}

bool ChunkUpdates::speculates() const {
  return std::any_of(early_.begin(), early_.end(), [](const Early& e) { return !e.kept.empty(); });
}

Ticket ChunkUpdates::run(const Op& op, const Chunk& chunk) {
  if (remaking_) {
    const bool replaced = replaces_params_early(shape_, chunk.group) && was_updated_early(chunk);
    return replaced ? make_params(op, chunk) : Ticket();
  }
  const UpdateArgs* const args = op.speculative ? speculation_ : update_;
  const bool sums = op.kind == OpKind::kSumSquares || op.kind == OpKind::kReadGrads;
  if (!sums && !op.ahead && args == nullptr) return {};
  const Early& early = nth(early_, chunk.group);
  if (!op.speculative && early.has(early.kept, chunk)) {
    return writes_params_early(shape_, chunk.group) ? Ticket() : make_params(op, chunk);
  }
  if (is_late(op, chunk)) return {};
  // With an image, the place that was current at the start of the program is no longer current.
  const bool former = store_.keeps_image() && !op.speculative && !op.ahead;
  const At at = op.speculative ? At::kOther : At::kCurrent;
  switch (op.kind) {
    case OpKind::kReadStates:
      return read_states(chunk, former ? At::kOther : At::kCurrent);
    case OpKind::kReadGrads:
      return read_grads(chunk);
    case OpKind::kCopyGrads:
      device_.to_host(memory_.gradients(chunk), memory_.group(chunk).device_grads + chunk.begin * 4,
                      chunk.elems * 4);
      return {};
    case OpKind::kUpdate:
      if (op.speculative) {
        update_early(chunk);
      } else {
        update(chunk, *args, memory_.new_weights(chunk), At::kCurrent);
      }
      return {};
    case OpKind::kWriteStates:
      return write_states(chunk, at);
    case OpKind::kCopyParams:
      copy_params(chunk);
      return {};
    case OpKind::kWriteParams:
      return store_.write(memory_.group(chunk).params, chunk.begin, chunk.elems,
                          memory_.updated_weights(chunk), at);
    default:
      sum_squares(chunk);
      return {};
  }
}

// The norm needs the sums of squares in any case.
bool ChunkUpdates::is_late(const Op& op, const Chunk& chunk) const {
  if (!op.speculative || !on_host()) return false;
  if (op.kind == OpKind::kCopyParams) return !was_updated_early(chunk);
  const bool can_wait = op.kind == OpKind::kUpdate || op.kind == OpKind::kCopyGrads;
  return can_wait && backward_ended_;
}

// Of a chunk whose states are as they should be: its parameters, from the master weights or from
// their second place.
Ticket ChunkUpdates::make_params(const Op& op, const Chunk& chunk) {
  const OffDeviceGroup& g = memory_.group(chunk);
  if (g.remainders >= 0) {
    if (op.kind == OpKind::kUpdate) {
      convert(memory_.new_weights(chunk), shape_.dtype, memory_.new_weights(chunk, At::kOther),
              shape_.dtype, chunk.elems);
    }
    return {};
  }
  if (op.kind == OpKind::kReadStates) {
    return store_.read(g.master, chunk.begin - g.on_device, chunk.elems,
                       memory_.slot(chunk, memory_.layout().master));
  }
  if (op.kind == OpKind::kCopyParams) copy_params(chunk);
  if (op.kind == OpKind::kWriteParams) {
    return store_.write(g.params, chunk.begin, chunk.elems, memory_.updated_weights(chunk));
  }
  std::byte* const weights = op.kind == OpKind::kUpdate ? memory_.new_weights(chunk) : nullptr;
  if (weights != nullptr) {
    convert(weights, shape_.dtype, memory_.master(chunk), DType::kFloat32, chunk.elems);
  }
  return {};
}

Ticket ChunkUpdates::read_states(const Chunk& chunk, At at) {
  const OffDeviceGroup& g = memory_.group(chunk);
  return for_states(optimizer_.type, g, memory_.layout(), [&](RowId row, std::int64_t part) {
    return store_.read(row, chunk.begin - g.on_device, chunk.elems, memory_.slot(chunk, part), at);
  });
}

Ticket ChunkUpdates::write_states(const Chunk& chunk, At at) {
  const OffDeviceGroup& g = memory_.group(chunk);
  return for_states(optimizer_.type, g, memory_.layout(), [&](RowId row, std::int64_t part) {
    return store_.write(row, chunk.begin - g.on_device, chunk.elems, memory_.slot(chunk, part), at);
  });
}

Ticket ChunkUpdates::read_grads(const Chunk& chunk) {
  const std::vector<RowId>& grads = memory_.group(chunk).grads;
  return issue_all(grads.size(), [&](std::size_t s) {
    return store_.read(grads[s], chunk.begin, chunk.elems, memory_.gradient_stream(chunk, s));
  });
}

void ChunkUpdates::add_streams(const Chunk& chunk) {
  if (shape_.placement.gradients != Tier::kNvme) return;
  for (std::size_t s = 1; s < memory_.group(chunk).grads.size(); ++s) {
    add_to(reinterpret_cast<float*>(memory_.gradients(chunk)), memory_.gradient_stream(chunk, s),
           DType::kFloat32, chunk.elems, true);
  }
}

// What is on the host goes to its other place; states in the ring are written to it.
void ChunkUpdates::update_early(const Chunk& chunk) {
  Early& early = nth(early_, chunk.group);
  nth(early.updated, early.number_of(chunk)) = 1;
  std::byte* weights = nullptr;
  if (writes_params_early(shape_, chunk.group)) weights = memory_.new_weights(chunk);
  if (memory_.group(chunk).remainders >= 0) weights = memory_.new_weights(chunk, At::kOther);
  update(chunk, *speculation_, weights, on_host() ? At::kOther : At::kCurrent);
}

void ChunkUpdates::update(const Chunk& chunk, const UpdateArgs& update, std::byte* weights, At to) {
  failpoint("engine.update." + std::to_string(chunk.group));
  add_streams(chunk);
  const OffDeviceGroup& g = memory_.group(chunk);
  const bool elsewhere = to == At::kOther;
  const OptimizerRule& rule = rule_of(optimizer_.type);
  const std::byte* const grads = memory_.gradients(chunk);
  const DType grad_dtype = gradient_dtype(shape_, chunk.group);
  const DType moments_dtype = shape_.placement.moments_dtype;
  for (const ShardSegment& segment : g.segments) {
    const std::int64_t begin = std::max(segment.range.begin, chunk.begin) - chunk.begin;
    const std::int64_t end = std::min(segment.range.end, chunk.begin + chunk.elems) - chunk.begin;
    if (begin >= end) continue;
    UpdateSpan args = update_span(optimizer_, update, segment.decay);
    if (g.remainders < 0) {
      args.master = memory_.master(chunk) + begin;
      if (elsewhere) args.master_out = memory_.master(chunk, to) + begin;
    } else {
      args.remainders = memory_.remainders(chunk) + begin;
      if (elsewhere) args.remainders_out = memory_.remainders(chunk, to) + begin;
      args.weights = memory_.new_weights(chunk) + begin * size_of(shape_.dtype);
    }
    for (std::size_t k = 0; k < rule.moments; ++k) {
      const auto moments = [&](At at) {
        return memory_.state(chunk, g.moments[k], memory_.layout().moments[k], at) +
               begin * size_of(moments_dtype);
      };
      args.moments[k] = moments(At::kCurrent);
      if (elsewhere) args.moments_out[k] = moments(to);
    }
    args.moments_dtype = moments_dtype;
    args.rounding_element = g.first_element + chunk.begin + begin;
    args.grad = grads + begin * size_of(grad_dtype);
    args.grad_dtype = grad_dtype;
    args.weights_dtype = shape_.dtype;
    if (weights != nullptr) args.weights_out = weights + begin * size_of(shape_.dtype);
    args.n = end - begin;
    rule.update(args);
  }
}

void ChunkUpdates::copy_params(const Chunk& chunk) {
  const std::int64_t element_bytes = size_of(shape_.dtype);
  device_.to_device(memory_.group(chunk).device_shard + chunk.begin * element_bytes,
                    memory_.updated_weights(chunk), chunk.elems * element_bytes);
}

void ChunkUpdates::sum_squares(const Chunk& chunk) {
  add_streams(chunk);
  std::vector<double>& sums = nth(block_sums_, chunk.group);
  sum_squares_blocks(memory_.gradients(chunk), gradient_dtype(shape_, chunk.group), chunk.elems,
                     sums.data() + chunk.begin / kChunkAlignElems);
}

double ChunkUpdates::sum_squares(int g) const {
  const std::vector<double>& sums = nth(block_sums_, g);
  return pairwise_sum(sums.data(), static_cast<std::int64_t>(sums.size()));
}

}  // namespace sluice
