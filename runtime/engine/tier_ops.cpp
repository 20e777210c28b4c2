// The operations between tiers. Lanes call from threads of their own: what is written here belongs
// to the operation's chunk, bucket or group.
#include <algorithm>
#include <cstring>
#include <exception>

#include "kernels/base/error.hpp"
#include "kernels/base/failpoint.hpp"
#include "kernels/cpu/adamw.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/reduce.hpp"
#include "runtime/engine/tier_store.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Done when all are; the first error in the order given is the error.
class AllOf final : public TicketState {
 public:
  explicit AllOf(std::vector<Ticket> parts) : parts_(std::move(parts)) {}
  void wait() override {
    std::exception_ptr first;
    for (const Ticket& part : parts_) {
      try {
        part.wait();
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }
  bool done() override {
    return std::all_of(parts_.begin(), parts_.end(), [](const Ticket& t) { return t.done(); });
  }

 private:
  std::vector<Ticket> parts_;
};

Ticket all_of(std::vector<Ticket> parts) {
  if (parts.size() == 1) return parts.front();
  return Ticket(std::make_shared<AllOf>(std::move(parts)));
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  std::copy_n(static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(to));
}

}  // namespace

Ticket TierStore::run(const Program& program, const Op& op, std::byte* device_arena) {
  const auto place = [&](BufferId id, std::byte* arena) {
    return arena + program.buffers[static_cast<std::size_t>(id)].arena_offset;
  };
  if (op.chunk >= 0) {
    const Chunk& chunk = program.chunks[static_cast<std::size_t>(op.chunk)];
    const bool always = op.kind == OpKind::kSumSquares || op.kind == OpKind::kReadGrads || op.ahead;
    if (!always && update_ == nullptr) return {};
    switch (op.kind) {
      case OpKind::kReadStates:
        return move_states(chunk, false);
      case OpKind::kReadGrads:
        return read_grads(chunk);
      case OpKind::kCopyGrads:
        copy_grads(chunk);
        return {};
      case OpKind::kUpdate:
        update(chunk);
        return {};
      case OpKind::kWriteStates:
        return move_states(chunk, true);
      case OpKind::kCopyParams:
        copy_params(chunk);
        return {};
      case OpKind::kWriteParams:
        return write_params(chunk);
      default:
        sum_squares(chunk);
        return {};
    }
  }
  std::byte* host = op.host_slot >= 0 ? place(op.host_slot, arena_.data()) : nullptr;
  switch (op.kind) {
    case OpKind::kReadShard:
      return read(away(op.group).params, 0, owned_elems(shape_, op.group), host);
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

std::byte* TierStore::slot(const Chunk& chunk, std::int64_t part) const {
  return ring_.data() + chunk.slot * layout_.bytes + part;
}

// A chunk's part of one of the states: in place on the host, or in its slot.
void* TierStore::state(const Chunk& chunk, const Array& array, std::int64_t part) const {
  if (array.on_disk()) return slot(chunk, part);
  return array.host + (chunk.begin - away(chunk.group).there) * array.element_bytes;
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
    return a.params.host + chunk.begin * a.params.element_bytes;
  }
  return shape_.dtype == DType::kFloat32 ? nullptr : slot(chunk, layout_.weights);
}

Ticket TierStore::move_states(const Chunk& chunk, bool to_disk) {
  const Away& a = away(chunk.group);
  const std::int64_t begin = chunk.begin - a.there;
  const auto move = [&](const Array& array, std::int64_t part) {
    std::byte* const at = slot(chunk, part);
    return to_disk ? write(array, begin, chunk.elems, at) : read(array, begin, chunk.elems, at);
  };
  return all_of({move(a.master, layout_.master), move(a.moment1, layout_.moment1),
                 move(a.moment2, layout_.moment2)});
}

Ticket TierStore::read_grads(const Chunk& chunk) {
  const Away& a = away(chunk.group);
  std::vector<Ticket> reads;
  reads.reserve(a.grads.size());
  for (std::size_t s = 0; s < a.grads.size(); ++s) {
    reads.push_back(
        read(a.grads[s], chunk.begin, chunk.elems,
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
  const float* from = host_data<float>(groups_.group(chunk.group).grad_owned) + chunk.begin;
  copy_bytes(gradients(chunk), from, chunk.elems * 4);
}

void TierStore::update(const Chunk& chunk) {
  failpoint("engine.update." + std::to_string(chunk.group));
  add_streams(chunk);
  const Away& a = away(chunk.group);
  auto* const master = static_cast<float*>(state(chunk, a.master, layout_.master));
  auto* const moment1 = static_cast<std::byte*>(state(chunk, a.moment1, layout_.moment1));
  auto* const moment2 = static_cast<std::byte*>(state(chunk, a.moment2, layout_.moment2));
  const float* const grads = gradients(chunk);
  std::byte* const weights = new_weights(chunk);
  for (const ShardSegment& segment : groups_.group(chunk.group).segments) {
    const std::int64_t begin = std::max(segment.range.begin, chunk.begin) - chunk.begin;
    const std::int64_t end = std::min(segment.range.end, chunk.begin + chunk.elems) - chunk.begin;
    if (begin >= end) continue;
    AdamWArgs args = adamw_args(optimizer_, *update_, segment.decay);
    args.master = master + begin;
    args.m = moment1 + begin * a.moment1.element_bytes;
    args.v = moment2 + begin * a.moment2.element_bytes;
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
  auto* to = static_cast<std::byte*>(host_bytes(groups_.group(chunk.group).shard));
  copy_bytes(to + chunk.begin * element_bytes, from, chunk.elems * element_bytes);
}

Ticket TierStore::write_params(const Chunk& chunk) {
  const std::byte* from = new_weights(chunk);
  if (from == nullptr) {
    from =
        reinterpret_cast<const std::byte*>(state(chunk, away(chunk.group).master, layout_.master));
  }
  return write(away(chunk.group).params, chunk.begin, chunk.elems, from);
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

void TierStore::fetch_shard(const Op& op, const std::byte* staging, std::byte* gathered) {
  const Array& params = away(op.group).params;
  const std::int64_t bytes = owned_elems(shape_, op.group) * params.element_bytes;
  copy_bytes(gathered + dp_rank_ * bytes, params.on_disk() ? staging : params.host, bytes);
}

Ticket TierStore::move_bucket(const Program& program, const Op& op, std::byte* host) {
  std::vector<Ticket> parts;
  for (const BucketPiece& piece : program.buckets[static_cast<std::size_t>(op.bucket)]) {
    const Array& grads = away(piece.group).grads[static_cast<std::size_t>(piece.stream)];
    parts.push_back(op.kind == OpKind::kReadBucket ? read(grads, piece.begin, piece.elems, host)
                                                   : write(grads, piece.begin, piece.elems, host));
    host += piece.elems * 4;
  }
  return all_of(std::move(parts));
}

void TierStore::store_grads(const Program& program, const Op& op, const std::byte* reduced,
                            std::byte* host) {
  for (const BucketPiece& piece : program.buckets[static_cast<std::size_t>(op.bucket)]) {
    const Array& grads = away(piece.group).grads[static_cast<std::size_t>(piece.stream)];
    auto* to = reinterpret_cast<float*>(grads.on_disk() ? host : grads.host + piece.begin * 4);
    add_to(to, reduced, DType::kFloat32, piece.elems, op.accumulate);
    reduced += piece.elems * 4;
    if (grads.on_disk()) host += piece.elems * 4;
  }
}

void TierStore::add_gradient_streams(int g) {
  Away& a = away(g);
  for (std::size_t s = 1; s < a.grads.size(); ++s) {
    add_to(reinterpret_cast<float*>(a.grads[0].host), a.grads[s].host, DType::kFloat32,
           owned_elems(shape_, g), true);
  }
}

ExtentId TierStore::input_extent(const Op& op) const {
  const std::vector<ExtentId>& extents = inputs_[static_cast<std::size_t>(op.unit)];
  return extents[static_cast<std::size_t>(op.micro_batch) % extents.size()];
}

}  // namespace sluice
