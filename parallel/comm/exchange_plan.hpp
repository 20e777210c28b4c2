// How a reduce-scatter is cut into batches: pure arithmetic, the same on every rank.
//
// The pieces are thought of as one run of elements. A batch is `batch_elems` of it (the last may be
// shorter): at most two are under way, one being received while the other is added. The staging
// memory is a ring of two batches for each peer: element e of the run, from peer slot s, lies at
// element s * ring_elems + e % (2 * batch_elems).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"

namespace sluice {

struct ExchangeSegment {
  std::size_t piece = 0;
  std::int64_t offset = 0;  // elements into the piece
  std::int64_t elems = 0;
  std::int64_t ring = 0;  // elements into a peer's ring
};
using ExchangeBatch = std::vector<ExchangeSegment>;

struct ExchangePlan {
  std::int64_t ring_elems = 0;  // of one peer
  std::vector<ExchangeBatch> batches;
};

// Elements of a batch in a group of `size` ranks: the peers' rings together stay near 16 MiB.
[[nodiscard]] std::int64_t exchange_batch_elems(int size, DType input);
// Bytes of the rings of all peers.
[[nodiscard]] std::int64_t exchange_staging_bytes(int size, std::int64_t total_elems, DType input);
// Empty pieces have no segment. REQUIRES: piece_elems[i] >= 0, batch_elems > 0.
[[nodiscard]] ExchangePlan plan_exchange(std::span<const std::int64_t> piece_elems,
                                         std::int64_t batch_elems);

}  // namespace sluice
