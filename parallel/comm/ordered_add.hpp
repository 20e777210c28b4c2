// The sum of every communicator on host memory: adds shares in rank order, in fp32.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/comm/reduce_dtype.hpp"

namespace sluice {

// output[i] = (s_0[i] + s_1[i]) + s_2[i] + ..., or output[i] += that sum with `accumulate`. s_r is
// shares[r], rounded if `dtype` says so: `elems` elements of dtype.input, of any alignment. The
// output may be one of the shares (fp32), but must not overlap a share otherwise. Thread-safe;
// allocates nothing.
void ordered_add(std::span<const void* const> shares, ReduceDtype dtype, std::int64_t elems,
                 float* output, bool accumulate);

// Rounds fp32 elements to bf16 as ordered_add() does. Both of any alignment, and apart.
// Thread-safe.
void round_share(const void* share, std::int64_t elems, void* rounded);

}  // namespace sluice
