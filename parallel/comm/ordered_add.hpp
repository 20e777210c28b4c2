// The one sum of all communicators on host memory: shares added in rank order, in fp32.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

// output[i] = (s_0[i] + s_1[i]) + s_2[i] + ..., or output[i] += that sum where `accumulate`; s_r is
// shares[r], `elems` elements of `input`. Shares need not be aligned to their element size. The
// output may be one of the shares (fp32), never overlap one otherwise. Thread-safe, allocates
// nothing.
void ordered_add(std::span<const void* const> shares, DType input, std::int64_t elems,
                 float* output, bool accumulate);

}  // namespace sluice
