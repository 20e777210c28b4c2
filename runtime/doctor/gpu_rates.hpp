// How fast one GPU computes and copies.
#pragma once

#include <cstdint>

#include "runtime/doctor/gpu_device.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {

struct GpuEffort {
  std::int64_t copy_bytes = 0;    // one way, from and to registered memory
  std::int64_t memory_bytes = 0;  // of an array on the device
  std::int64_t largest_side = 0;  // of a matrix
  double product_s = 0;           // of one round of products
  int rounds = 1;
};
[[nodiscard]] GpuEffort gpu_effort(bool quick);

// Fills rates.gpu and, by "gpu.FIELD", rates.spread; what fails leaves its reason in not_measured
// and the others go on. Returns the device's facts with its link (`pci_devices`: see pci_link.hpp),
// read while that is awake. Throws Error where not even facts are to be had.
//
// Copies go as the tiers' do: each way by a thread of its own on a stream of its own, from and to
// registered pages, of which there are as many as are copied. What comes back is compared with what
// was sent. All times are the device's own, by stamps on its streams; medians.
[[nodiscard]] GpuFacts measure_gpu(GpuDevice& gpu, const GpuEffort& effort,
                                   const std::string& pci_devices, MachineRates& rates);

}  // namespace sluice
