// Sizes of the exchange between ranks of one host: pure arithmetic, the same on every rank.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// Elements of a reduce_scatter that are read from all peers before they are added: together they
// stay in the second-level cache.
[[nodiscard]] std::int64_t host_block_elems(int size, DType input);

// Communicator::reduce_scatter_staging_bytes of a host communicator; at most
// exchange_staging_bytes, Gloo's.
[[nodiscard]] std::int64_t host_staging_bytes(int size, std::int64_t total_elems, DType input);

// Elements that each of `readers` ranks, with a part of its own, takes from a bounce buffer in one
// round. The buffer holds two rounds.
[[nodiscard]] std::int64_t host_bounce_elems(int readers, DType dtype);

}  // namespace sluice
