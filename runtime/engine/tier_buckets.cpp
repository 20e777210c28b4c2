// Gradients off the device: from reduced buckets to the groups' shards; and parameters on their way
// back.
#include <algorithm>

#include "kernels/cpu/cast.hpp"
#include "runtime/engine/all_of.hpp"
#include "runtime/engine/tier_store.hpp"

namespace sluice {

void TierStore::fetch_shard(const Op& op, const std::byte* staging, DevicePtr gathered) {
  const Array& params = away(op.group).params;
  const std::int64_t bytes = owned_elems(shape_, op.group) * params.element_bytes();
  copies_.device().to_device(gathered + dp_rank_ * bytes, params.on_disk() ? staging : params.host,
                             bytes);
}

Ticket TierStore::move_bucket(const Program& program, const Op& op, std::byte* host) {
  std::vector<Ticket> parts;
  for (const BucketPiece& piece : program.buckets[static_cast<std::size_t>(op.bucket)]) {
    const Array& grads = away(piece.group).grads[static_cast<std::size_t>(piece.stream)];
    parts.push_back(op.kind == OpKind::kReadBucket
                        ? read(piece.group, grads, piece.begin, piece.elems, host)
                        : write(piece.group, grads, piece.begin, piece.elems, host));
    host += piece.elems * 4;
  }
  return all_of(std::move(parts));
}

// A reduced bucket to its places, `host` being that of what goes on to NVMe. What is only written
// needs no bounce buffer.
void TierStore::store_grads(const Program& program, const Op& op, DevicePtr reduced,
                            std::byte* host) {
  DeviceCopies& device = copies_.device();
  const std::vector<BucketPiece>& pieces = program.buckets[static_cast<std::size_t>(op.bucket)];
  // Calls store(to, first, n) for what of elements [begin, end) of the bucket has one place.
  const auto each = [&](std::int64_t begin, std::int64_t end, const auto& store) {
    std::int64_t at = 0;
    std::byte* staged = host;
    for (const BucketPiece& piece : pieces) {
      const Array& grads = away(piece.group).grads[static_cast<std::size_t>(piece.stream)];
      auto* to = reinterpret_cast<float*>(grads.on_disk() ? staged : grads.host + piece.begin * 4);
      const std::int64_t first = std::max(begin, at);
      const std::int64_t n = std::min(end, at + piece.elems) - first;
      if (n > 0) store(to + (first - at), first, n);
      at += piece.elems;
      if (grads.on_disk()) staged += piece.elems * 4;
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

void TierStore::add_gradient_streams(int g) {
  Away& a = away(g);
  for (std::size_t s = 1; s < a.grads.size(); ++s) {
    add_to(reinterpret_cast<float*>(a.grads[0].host), a.grads[s].host, DType::kFloat32,
           owned_elems(shape_, g), true);
  }
}

}  // namespace sluice
