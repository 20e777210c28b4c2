#include "runtime/engine/tiers/tier_moves.hpp"

#include <algorithm>

#include "base/all_of.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/cpu/cast.hpp"

namespace sluice {

Ticket TierMoves::run(const Program& program, const Op& op, DevicePtr device_arena) {
  const auto place = [&](BufferId id, auto arena) {
    return arena + nth(program.buffers, id).arena_offset;
  };
  std::byte* const host = op.host_slot >= 0 ? place(op.host_slot, arena_) : nullptr;
  switch (op.kind) {
    case OpKind::kReadShard:
      return store_.read(nth(groups_, op.group).params, 0, owned_elems(shape_, op.group), host);
    case OpKind::kFetchShard:
      fetch_shard(op, host, place(op.device_slot, device_arena));
      return {};
    case OpKind::kStoreGrads:
      store_grads(program, op, place(op.device_slot, device_arena), host);
      return {};
    case OpKind::kReadBucket:
    case OpKind::kWriteBucket:
      return move_bucket(program, op, host);
    case OpKind::kWriteInput: {
      const RowId input = store_.input(op.unit, op.micro_batch);
      return store_.write(input, 0, store_.row(input).elems, host);
    }
    case OpKind::kReadInput: {
      const RowId input = store_.input(op.unit, op.micro_batch);
      return store_.read(input, 0, store_.row(input).elems, host);
    }
    default:
      throw Error("the operation " + std::string(name_of(op.kind)) + " moves nothing");
  }
}

void TierMoves::fetch_shard(const Op& op, const std::byte* staging, DevicePtr gathered) {
  const RowId params = nth(groups_, op.group).params;
  const std::int64_t bytes = owned_elems(shape_, op.group) * store_.row(params).element_bytes;
  copies_.device().to_device(gathered + dp_rank_ * bytes,
                             store_.on_nvme(params) ? staging : store_.host(params), bytes);
}

RowId TierMoves::grads(const BucketPiece& piece) const {
  return nth(nth(groups_, piece.group).grads, piece.stream);
}

Ticket TierMoves::move_bucket(const Program& program, const Op& op, std::byte* host) {
  const std::vector<BucketPiece>& pieces = nth(program.buckets, op.bucket);
  return issue_all(pieces.size(), [&](std::size_t i) {
    const BucketPiece& piece = pieces[i];
    std::byte* const at = std::exchange(host, host + piece.elems * 4);
    return op.kind == OpKind::kReadBucket
               ? store_.read(grads(piece), piece.begin, piece.elems, at)
               : store_.write(grads(piece), piece.begin, piece.elems, at);
  });
}

// Copies a reduced bucket to the gradient shards on the host, or to `host` for a write to NVMe.
// Only gradients that the host adds pass through the bounce buffer.
void TierMoves::store_grads(const Program& program, const Op& op, DevicePtr reduced,
                            std::byte* host) {
  DeviceCopies& device = copies_.device();
  const std::vector<BucketPiece>& pieces = nth(program.buckets, op.bucket);
  // Calls store(to, first, n) for each run of elements [begin, end) of the bucket that has one
  // place.
  const auto each = [&](std::int64_t begin, std::int64_t end, const auto& store) {
    std::int64_t at = 0;
    std::byte* staged = host;
    for (const BucketPiece& piece : pieces) {
      const RowId row = grads(piece);
      const bool on_nvme = store_.on_nvme(row);
      auto* to = reinterpret_cast<float*>(on_nvme ? staged : store_.host(row) + piece.begin * 4);
      const std::int64_t first = std::max(begin, at);
      const std::int64_t n = std::min(end, at + piece.elems) - first;
      if (n > 0) store(to + (first - at), first, n);
      at += piece.elems;
      if (on_nvme) staged += piece.elems * 4;
    }
  };
  std::int64_t elems = 0;
  for (const BucketPiece& piece : pieces) elems += piece.elems;
  if (!op.accumulate && !device.is_host()) {
    each(0, elems, [&](float* to, std::int64_t first, std::int64_t n) {
      device.to_host(to, reduced + first * 4, n * 4);
    });
    return;
  }
  copies_.bring(reduced, elems, [&](const float* values, std::int64_t begin, std::int64_t count) {
    each(begin, begin + count, [&](float* to, std::int64_t first, std::int64_t n) {
      add_to(to, values + (first - begin), DType::kFloat32, n, op.accumulate);
    });
  });
}

void TierMoves::add_gradient_streams(int g) {
  const std::vector<RowId>& streams = nth(groups_, g).grads;
  for (std::size_t s = 1; s < streams.size(); ++s) {
    add_to(reinterpret_cast<float*>(store_.host(streams[0])), store_.host(streams[s]),
           DType::kFloat32, owned_elems(shape_, g), true);
  }
}

}  // namespace sluice
