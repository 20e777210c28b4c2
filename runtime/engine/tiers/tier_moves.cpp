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
    const RowId row = grads(piece);
    std::byte* const at = std::exchange(host, host + piece.elems * store_.row(row).element_bytes);
    return op.kind == OpKind::kReadBucket ? store_.read(row, piece.begin, piece.elems, at)
                                          : store_.write(row, piece.begin, piece.elems, at);
  });
}

std::byte* TierMoves::place_of(const BucketPiece& piece, std::byte*& host) const {
  const RowId row = grads(piece);
  const std::int64_t size = store_.row(row).element_bytes;
  if (!store_.on_nvme(row)) return store_.host(row) + piece.begin * size;
  return std::exchange(host, host + piece.elems * size);
}

// Copies a reduced bucket, rounded to the dtype of its shards, to the shards on the host, or to
// `host` for a write to NVMe.
void TierMoves::store_grads(const Program& program, const Op& op, DevicePtr reduced,
                            std::byte* host) {
  if (op.accumulate) return add_grads(nth(program.buckets, op.bucket), reduced, host);
  DeviceCopies& device = copies_.device();
  for (const BucketPiece& piece : nth(program.buckets, op.bucket)) {
    std::byte* const to = place_of(piece, host);
    const DevicePtr from = std::exchange(reduced, reduced + piece.elems * 4);
    if (store_.row(grads(piece)).dtype == DType::kBFloat16) {
      device.to_host_bf16(to, from, piece.elems);
    } else if (device.is_host()) {  // on the compute threads
      convert(to, DType::kFloat32, reinterpret_cast<const void*>(from.address()), DType::kFloat32,
              piece.elems);
    } else {
      device.to_host(to, from, piece.elems * 4);
    }
  }
}

// Adds a reduced bucket to what store_grads() would overwrite. Gradients of a device with memory of
// its own pass through the bounce buffer.
void TierMoves::add_grads(const std::vector<BucketPiece>& pieces, DevicePtr reduced,
                          std::byte* host) {
  std::int64_t elems = 0;
  for (const BucketPiece& piece : pieces) elems += piece.elems;
  copies_.bring(reduced, elems, [&](const float* values, std::int64_t begin, std::int64_t count) {
    std::int64_t at = 0;
    std::byte* staged = host;
    for (const BucketPiece& piece : pieces) {
      auto* const sums = reinterpret_cast<float*>(place_of(piece, staged));
      const std::int64_t first = std::max(begin, at);
      const std::int64_t n = std::min(begin + count, at + piece.elems) - first;
      if (n > 0) add_to(sums + (first - at), values + (first - begin), DType::kFloat32, n, true);
      at += piece.elems;
    }
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
