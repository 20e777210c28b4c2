// Counts every byte libtorch's allocator hands out, on the host and on the meta device.
//
// On a machine without a GPU the host's count is the device tier's. The meta device has no memory:
// there the same code runs in no time and leaves only its count, which is how a unit's memory is
// known before the run. Counters are process-wide (libtorch has one allocator a device) and
// thread-safe.
#pragma once

#include <cstdint>

namespace sluice {

struct AllocationCount {
  std::int64_t live = 0;  // bytes handed out and not yet freed
  std::int64_t peak = 0;  // highest `live` since the last reset
};

enum class CountedDevice { kHost, kMeta };

// Installs the counting allocators; later calls do nothing. To be called before tensors are made:
// what was allocated before is not counted.
void install_counting_allocators();

[[nodiscard]] AllocationCount allocation_count(CountedDevice device);
// peak = live.
void reset_allocation_peak(CountedDevice device);

}  // namespace sluice
