// GPU memory as counted by libtorch's caching allocator and by the driver. A GPU's device tier is
// the memory that the allocator has reserved: blocks in use, and freed blocks that it keeps.
//
// REQUIRES (all functions): libtorch's allocator of the device is loaded (use_gpu).
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
// Segments as large as their first tensor would leave rests that no later tensor fits into. If the
// card has less memory, the function reserves nothing and throws no error.
void reserve_bytes(at::Device device, std::int64_t bytes);

// Bytes that a rank may take: free on the card, or already reserved by this process.
[[nodiscard]] std::int64_t available_bytes(at::Device device);

// Limits the allocator's reserved bytes to `budget`. Larger requests fail as out of memory.
void limit_reserved_bytes(at::Device device, std::int64_t budget);

}  // namespace sluice
