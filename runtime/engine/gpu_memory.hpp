// Memory of a GPU, as libtorch's caching allocator counts it and as the driver has it. A GPU's
// device tier is what the allocator has reserved: what it handed out, and freed blocks that it
// keeps.
//
// REQUIRES of all: a device of which libtorch's allocator is loaded (device_access.hpp, use_gpu).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice {

// Highest number of reserved bytes since the last reset.
[[nodiscard]] std::int64_t reserved_peak_bytes(at::Device device);
void reset_reserved_peak(at::Device device);

// Returns freed blocks that the allocator keeps to the driver.
void return_reserved_memory(at::Device device);

// The allocator returns freed blocks to the driver and reserves up to `bytes`, the difference as
// one segment. Tensors of a step are then cut from that segment, where freed neighbours merge.
// Segments as large as their first tensor would leave rests that no later tensor fits into.
void reserve_bytes(at::Device device, std::int64_t bytes);

// What a rank may still take: free on the card, or reserved by this process already.
[[nodiscard]] std::int64_t available_bytes(at::Device device);

// The allocator reserves no more than `budget` from now on: more is refused as out of memory.
void limit_reserved_bytes(at::Device device, std::int64_t budget);

}  // namespace sluice
