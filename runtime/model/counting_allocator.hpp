// Counts every byte libtorch's allocator hands out, on the host and on the meta device, and the
// engine's long-lived blocks, which say so themselves.
//
// On a machine without a GPU the host's count is the device tier's. The meta device has no memory:
// there the same code runs in no time and leaves only its count, which is how a unit's memory is
// known before the run; where it stands for a GPU (gpu_path.hpp) it counts whole blocks of the
// GPU's allocator. Counters are process-wide (libtorch has one allocator a device) and thread-safe.
#pragma once

#include <cstdint>

namespace sluice {

struct AllocationCount {
  std::int64_t live = 0;  // bytes handed out and not yet freed
  std::int64_t peak = 0;  // highest `live` since the last reset
};

enum class CountedDevice { kHost, kMeta };

// Installs the counting allocators; later calls do nothing. To be called before tensors are made:
// what was allocated before is not counted. From then on the C library keeps freed memory for the
// process instead of returning it to the kernel, so that steps find their pages there, and MKL
// keeps no buffers of its own.
void install_counting_allocators();

// Returns what has been freed so far after all: after set-up, before the run takes its memory.
void return_freed_memory();

[[nodiscard]] AllocationCount allocation_count(CountedDevice device);
// For memory that libtorch's allocator did not hand out and that counts like it. Each release
// follows its allocation, of the same bytes.
void count_allocation(CountedDevice device, std::int64_t bytes);
void count_release(CountedDevice device, std::int64_t bytes) noexcept;
// peak = live.
void reset_allocation_peak(CountedDevice device);

}  // namespace sluice
