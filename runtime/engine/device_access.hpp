// The host's access to an engine's device: memcpy if the device is the host, else functions of the
// CUDA module (cuda_tiers.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/update/update_span.hpp"
#include "runtime/engine/device_graphs.hpp"
#include "runtime/engine/tiers/tier_limits.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice {

// Throw ConfigError if the device needs the CUDA module and the module cannot be loaded.
[[nodiscard]] std::shared_ptr<DeviceCopies> device_copies(const TierOptions& options,
                                                          at::Device device);
// REQUIRES: a GPU.
[[nodiscard]] std::unique_ptr<DeviceGraphs> device_graphs(at::Device device);
// Returns `options` with the pages for copies to and from the device.
[[nodiscard]] TierOptions with_dma(TierOptions options, at::Device device);

// Makes GPU `index` the calling thread's current device, and gives the thread a stream of its own
// on it. A rank calls this function first on its own thread, which then executes programs. Throws
// Error, and ConfigError as device_copies().
void use_gpu(int index);

// Name of GPU `index`, from the driver. Throws as use_gpu().
[[nodiscard]] std::string gpu_name(int index);

// The optimizer's updates of memory of `device`: the rule's host function or CUDA function. On a
// GPU they are enqueued behind the calling thread's earlier work, 64 spans a launch. Throws as
// device_copies().
using UpdateKernel = std::function<void(std::span<const UpdateSpan>)>;
[[nodiscard]] UpdateKernel device_update(const OptimizerRule& rule, at::Device device);

// The sum of squares of each tensor, in double. The tensors are fp32 and contiguous, on one GPU.
// Bit-identical to sum_squares() of the same values on the host. The host waits once. Throws as
// device_copies().
[[nodiscard]] std::vector<double> gpu_sum_squares(std::span<const at::Tensor> tensors);

}  // namespace sluice
