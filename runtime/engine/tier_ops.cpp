// The operations between tiers. Lanes call from threads of their own: what is written here belongs
// to the operation's chunk, bucket or group.
#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "kernels/cpu/adamw.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/reduce.hpp"
#include "runtime/engine/all_of.hpp"
#include "runtime/engine/tier_store.hpp"

namespace sluice {

Ticket TierStore::run(const Program& program, const Op& op, DevicePtr device_arena) {
  const auto place = [&](BufferId id, auto arena) {
    return arena + program.buffers[static_cast<std::size_t>(id)].arena_offset;
  };
  if (op.chunk >= 0) return run_chunk(op, program.chunks[static_cast<std::size_t>(op.chunk)]);
  std::byte* host = op.host_slot >= 0 ? place(op.host_slot, arena_.data()) : nullptr;
  switch (op.kind) {
    case OpKind::kReadShard:
      return read(op.group, away(op.group).params, 0, owned_elems(shape_, op.group), host);
    case OpKind::kFetchShard:
      fetch_shard(op, host, place(op.device_slot, device_arena));
      return {};
    case OpKind::kStoreGrads:
      store_grads(program, op, place(op.device_slot, device_arena), host);
      return {};
    case OpKind::kReadBucket:
    case OpKind::kWriteBucket:
      return move_bucket(program, op, host);
    case OpKind::kWriteInput:
      return nvme_->write(input_extent(op), 0, host, nvme_->size_of(input_extent(op)));
    case OpKind::kReadInput:
      return nvme_->read(input_extent(op), 0, host, nvme_->size_of(input_extent(op)));
    default:
      throw Error("the operation " + std::string(name_of(op.kind)) + " moves nothing");
  }
}

Ticket TierStore::run_chunk(const Op& op, const Chunk& chunk) {
  const UpdateArgs* const args = op.speculative ? speculation_ : update_;
  const bool sums = op.kind == OpKind::kSumSquares || op.kind == OpKind::kReadGrads;
  if (!sums && !op.ahead && args == nullptr) return {};
  if (!op.speculative && keeps_ && is_early(chunk)) return end_kept_update(op, chunk);
  // Of an image, the place that was current when the program began is not any more.
  const bool former = image_ && !op.speculative && !op.ahead;
  const At at = op.speculative ? At::kOther : At::kCurrent;
  switch (op.kind) {
    case OpKind::kReadStates:
      return read_states(chunk, former ? At::kOther : At::kCurrent);
    case OpKind::kReadGrads:
      return read_grads(chunk);
    case OpKind::kCopyGrads:
      copy_grads(chunk);
      return {};
    case OpKind::kUpdate:
      // Parameters on the host are those that others read.
      update(chunk, *args,
             op.speculative && parameter_tier(shape_, chunk.group) != Tier::kNvme
                 ? nullptr
                 : new_weights(chunk));
      return {};
    case OpKind::kWriteStates:
      return write_states(chunk, at);
    case OpKind::kCopyParams:
      copy_params(chunk);
      return {};
    case OpKind::kWriteParams:
      return write_params(chunk, at);
    default:
      sum_squares(chunk);
      return {};
  }
}

bool TierStore::is_early(const Chunk& chunk) const {
  const Away& a = away(chunk.group);
  const std::int64_t begin = chunk.begin - a.there;
  return begin >= a.early_begin && begin < a.early_begin + a.early_elems;
}

// The states are updated; parameters elsewhere than on NVMe are made of them.
Ticket TierStore::end_kept_update(const Op& op, const Chunk& chunk) {
  const Away& a = away(chunk.group);
  if (parameter_tier(shape_, chunk.group) == Tier::kNvme) return {};
  if (op.kind == OpKind::kReadStates) {
    return read(chunk.group, a.master, chunk.begin - a.there, chunk.elems,
                slot(chunk, layout_.master));
  }
  if (op.kind == OpKind::kCopyParams) copy_params(chunk);
  std::byte* const weights = op.kind == OpKind::kUpdate ? new_weights(chunk) : nullptr;
  if (weights != nullptr) {
    convert(weights, shape_.dtype, slot(chunk, layout_.master), DType::kFloat32, chunk.elems);
  }
  return {};
}

std::byte* TierStore::slot(const Chunk& chunk, std::int64_t part) const {
  return ring_.data() + chunk.slot * layout_.bytes + part;
}

// A chunk's part of one of the states: in place on the host, or in its slot.
void* TierStore::state(const Chunk& chunk, const Array& array, std::int64_t part) const {
  if (array.on_disk()) return slot(chunk, part);
  return array.host + (chunk.begin - away(chunk.group).there) * array.element_bytes();
}

float* TierStore::gradients(const Chunk& chunk) const {
  if (shape_.placement.gradients != Tier::kHost) {
    return reinterpret_cast<float*>(slot(chunk, layout_.grads));
  }
  return reinterpret_cast<float*>(away(chunk.group).grads[0].host) + chunk.begin;
}

// Where the update writes parameters beside the master weights; null where it need not.
std::byte* TierStore::new_weights(const Chunk& chunk) const {
  const Away& a = away(chunk.group);
  if (params_are_master(shape_, chunk.group)) return nullptr;
  if (a.params_here && !a.params.on_disk()) {
    return a.params.host + chunk.begin * a.params.element_bytes();
  }
  return shape_.dtype == DType::kFloat32 ? nullptr : slot(chunk, layout_.weights);
}

Ticket TierStore::read_states(const Chunk& chunk, At at) {
  const Away& a = away(chunk.group);
  const auto part = [&](const Array& array, std::int64_t offset) {
    return read(chunk.group, array, chunk.begin - a.there, chunk.elems, slot(chunk, offset), at);
  };
  return all_of({part(a.master, layout_.master), part(a.moment1, layout_.moment1),
                 part(a.moment2, layout_.moment2)});
}

Ticket TierStore::write_states(const Chunk& chunk, At at) {
  const Away& a = away(chunk.group);
  const auto part = [&](const Array& array, std::int64_t offset) {
    return write(chunk.group, array, chunk.begin - a.there, chunk.elems, slot(chunk, offset), at);
  };
  return all_of({part(a.master, layout_.master), part(a.moment1, layout_.moment1),
                 part(a.moment2, layout_.moment2)});
}

Ticket TierStore::read_grads(const Chunk& chunk) {
  const Away& a = away(chunk.group);
  std::vector<Ticket> reads;
  reads.reserve(a.grads.size());
  for (std::size_t s = 0; s < a.grads.size(); ++s) {
    reads.push_back(
        read(chunk.group, a.grads[s], chunk.begin, chunk.elems,
             slot(chunk, layout_.grads + static_cast<std::int64_t>(s) * layout_.grad_stride)));
  }
  return all_of(std::move(reads));
}

void TierStore::add_streams(const Chunk& chunk) {
  if (shape_.placement.gradients != Tier::kNvme) return;
  for (std::size_t s = 1; s < away(chunk.group).grads.size(); ++s) {
    add_to(gradients(chunk),
           slot(chunk, layout_.grads + static_cast<std::int64_t>(s) * layout_.grad_stride),
           DType::kFloat32, chunk.elems, true);
  }
}

void TierStore::copy_grads(const Chunk& chunk) {
  copies_.device().to_host(gradients(chunk), away(chunk.group).device_grads + chunk.begin * 4,
                           chunk.elems * 4);
}

void TierStore::update(const Chunk& chunk, const UpdateArgs& update, std::byte* weights) {
  failpoint("engine.update." + std::to_string(chunk.group));
  add_streams(chunk);
  const Away& a = away(chunk.group);
  auto* const master = static_cast<float*>(state(chunk, a.master, layout_.master));
  auto* const moment1 = static_cast<std::byte*>(state(chunk, a.moment1, layout_.moment1));
  auto* const moment2 = static_cast<std::byte*>(state(chunk, a.moment2, layout_.moment2));
  const float* const grads = gradients(chunk);
  for (const ShardSegment& segment : a.segments) {
    const std::int64_t begin = std::max(segment.range.begin, chunk.begin) - chunk.begin;
    const std::int64_t end = std::min(segment.range.end, chunk.begin + chunk.elems) - chunk.begin;
    if (begin >= end) continue;
    AdamWArgs args = adamw_args(optimizer_, update, segment.decay);
    args.master = master + begin;
    args.m = moment1 + begin * a.moment1.element_bytes();
    args.v = moment2 + begin * a.moment2.element_bytes();
    args.moments_dtype = shape_.placement.moments_dtype;
    args.rounding_seed = seed_;
    args.rounding_element = a.first_element + chunk.begin + begin;
    args.grad = grads + begin;
    if (weights != nullptr) {
      args.weights_out = weights + begin * size_of(shape_.dtype);
      args.weights_dtype = shape_.dtype;
    }
    args.n = end - begin;
    adamw(args);
  }
}

// To the device's shard: from the update's output, or in fp32 from the master weights.
void TierStore::copy_params(const Chunk& chunk) {
  const std::byte* from = new_weights(chunk);
  if (from == nullptr) {
    from =
        reinterpret_cast<const std::byte*>(state(chunk, away(chunk.group).master, layout_.master));
  }
  const std::int64_t element_bytes = size_of(shape_.dtype);
  copies_.device().to_device(away(chunk.group).device_shard + chunk.begin * element_bytes, from,
                             chunk.elems * element_bytes);
}

Ticket TierStore::write_params(const Chunk& chunk, At at) {
  const std::byte* from = new_weights(chunk);
  if (from == nullptr) {
    from =
        reinterpret_cast<const std::byte*>(state(chunk, away(chunk.group).master, layout_.master));
  }
  return write(chunk.group, away(chunk.group).params, chunk.begin, chunk.elems, from, at);
}

void TierStore::sum_squares(const Chunk& chunk) {
  add_streams(chunk);
  sum_squares_blocks(gradients(chunk), DType::kFloat32, chunk.elems,
                     away(chunk.group).block_sums.data() + chunk.begin / kChunkAlignElems);
}

double TierStore::sum_squares(int g) const {
  const std::vector<double>& sums = away(g).block_sums;
  return pairwise_sum(sums.data(), static_cast<std::int64_t>(sums.size()));
}

ExtentId TierStore::input_extent(const Op& op) const {
  const std::vector<ExtentId>& extents = inputs_[static_cast<std::size_t>(op.unit)];
  return extents[static_cast<std::size_t>(op.micro_batch) % extents.size()];
}

}  // namespace sluice
