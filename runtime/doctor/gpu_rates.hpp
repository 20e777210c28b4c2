// Rates of one GPU: products, attention and copies.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/doctor/attention_work.hpp"
#include "runtime/doctor/gpu_device.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {

struct GpuEffort {
  std::int64_t copy_bytes = 0;    // one way, from and to registered memory
  std::int64_t memory_bytes = 0;  // of an array on the device
  std::int64_t largest_side = 0;  // of a matrix
  double product_s = 0;           // of one round of products, or of attention
  int rounds = 1;
};
[[nodiscard]] GpuEffort gpu_effort(bool quick);

// Makes the tensors on the open GPU. The result enqueues one forward and backward on the calling
// thread's stream, and frees the tensors with its last copy. Both throw what libtorch throws.
using AttentionProbe = std::function<std::function<void()>(const AttentionShape& shape)>;

// Fills rates.gpu and, by "gpu.FIELD", rates.spread. A failed measurement leaves its reason in
// not_measured, and the others continue. Returns the device's facts with its link (`pci_devices`:
// see pci_link.hpp), read while the link is awake. Throws Error if even the facts are unavailable.
//
// Copies use the memory tiers' code: a thread and a stream for each direction, registered host
// pages, as many pages as are copied. Copied data is compared. All times are the device's own, by
// stamps on its streams; medians.
[[nodiscard]] GpuFacts measure_gpu(GpuDevice& gpu, const GpuEffort& effort,
                                   const std::string& pci_devices, const AttentionProbe& attention,
                                   MachineRates& rates);

}  // namespace sluice
