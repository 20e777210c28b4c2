// Sizes of the exchange between ranks of one host. Pure arithmetic, equal on every rank.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// Elements of a reduce_scatter block. The blocks of all peers fit in the second-level cache
// together.
[[nodiscard]] std::int64_t host_block_elems(int size, DType input);

// Communicator::reduce_scatter_staging_bytes() of a host communicator. At most Gloo's value,
// exchange_staging_bytes().
[[nodiscard]] std::int64_t host_staging_bytes(int size, std::int64_t total_elems, DType input);

// Elements that each of `readers` ranks takes from a bounce buffer in one round, if each reads a
// different part. The buffer holds two rounds.
[[nodiscard]] std::int64_t host_bounce_elems(int readers, DType dtype);

}  // namespace sluice
