// The cut of a reduce-scatter into batches. Pure arithmetic, equal on every rank.
//
// The pieces form one sequence of elements. A batch is a run of batch_elems elements; the last
// batch may be shorter. At most two batches are in flight: one is received while the other is
// added. The staging memory holds a ring of two batches for each peer. Element e of the sequence,
// from peer slot s, lies at element s * ring_elems + e % (2 * batch_elems). If shares are rounded
// (ReduceDtype), one more ring for each rank of the group follows. These rings hold the rounded
// shares that this rank sends or adds itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/comm/reduce_dtype.hpp"

namespace sluice {

struct ExchangeSegment {
  std::size_t piece = 0;
  std::int64_t offset = 0;  // in elements from the begin of the piece
  std::int64_t elems = 0;
  std::int64_t ring = 0;  // in elements from the begin of a peer's ring
};
using ExchangeBatch = std::vector<ExchangeSegment>;

struct ExchangePlan {
  std::int64_t ring_elems = 0;  // of one peer
  std::vector<ExchangeBatch> batches;
};

// Elements of a batch in a group of `size` ranks: messages large enough for a GPU's links, while
// the rings stay near 64 MiB, or 130 MiB where shares are rounded.
[[nodiscard]] std::int64_t exchange_batch_elems(int size, ReduceDtype dtype);
// Bytes of all rings.
[[nodiscard]] std::int64_t exchange_staging_bytes(int size, std::int64_t total_elems,
                                                  ReduceDtype dtype);
// Empty pieces get no segment. REQUIRES: piece_elems[i] >= 0, batch_elems > 0.
[[nodiscard]] ExchangePlan plan_exchange(std::span<const std::int64_t> piece_elems,
                                         std::int64_t batch_elems);

}  // namespace sluice
