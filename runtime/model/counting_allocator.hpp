// Counts every byte of libtorch's allocator, on the host and on the meta device, and the engine's
// long-lived blocks, which report themselves.
//
// On a machine without a GPU the host's count is the device tier's. The meta device has no memory:
// the same code runs on it in no time and leaves only its count. So a unit's memory is known before
// the run. If the meta device stands for a GPU (gpu_path.hpp), whole blocks of the GPU's allocator
// are counted. The host's count is the process's; the meta device's is the calling thread's, which
// makes and frees the tensors that it counts. Thread-safe.
#pragma once

#include <cstdint>

namespace sluice {

struct AllocationCount {
  std::int64_t live = 0;  // bytes handed out and not yet freed
  std::int64_t peak = 0;  // highest `live` since the last reset
};

// kMetaSmall: of the meta device's, blocks up to kSmallCudaBlock, where it stands for a GPU.
enum class CountedDevice { kHost, kMeta, kMetaSmall };

// Installs the counting allocators; later calls do nothing. Call it before tensors are made, since
// earlier allocations are not counted. From then on the C library keeps freed memory for the
// process, so that steps reuse their pages, and MKL keeps no buffers of its own.
void install_counting_allocators();

// Returns freed memory to the kernel. Called after set-up, before the run takes its memory.
void return_freed_memory();

[[nodiscard]] AllocationCount allocation_count(CountedDevice device);
// Counts memory that libtorch's allocator did not hand out. Each release follows its allocation,
// with the same bytes.
void count_allocation(CountedDevice device, std::int64_t bytes);
void count_release(CountedDevice device, std::int64_t bytes) noexcept;
// Sets peak = live.
void reset_allocation_peak(CountedDevice device);

}  // namespace sluice
