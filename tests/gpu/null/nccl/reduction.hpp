// The sums of NCCL's reductions, on the host.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace null_gpu {

[[nodiscard]] std::size_t bytes_of(ncclDataType_t type);
// Whether reduce() knows them.
[[nodiscard]] bool is_reducible(ncclDataType_t type, ncclRedOp_t op);

// Combines `parts`, `count` elements each, in their order. Types of 16 bits are added in fp32 and
// rounded once.
void reduce(const std::vector<const std::byte*>& parts, std::size_t count, ncclDataType_t type,
            ncclRedOp_t op, std::byte* output);

}  // namespace null_gpu
