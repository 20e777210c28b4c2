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
#include "runtime/engine/device_events.hpp"
#include "runtime/engine/device_graphs.hpp"
#include "runtime/engine/device_norm.hpp"
#include "runtime/engine/tiers/tier_limits.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice {

// Throw ConfigError if the device needs the CUDA module and the module cannot be loaded.
[[nodiscard]] std::shared_ptr<DeviceCopies> device_copies(const TierOptions& options,
                                                          at::Device device);
// REQUIRES: a GPU.
[[nodiscard]] std::unique_ptr<DeviceGraphs> device_graphs(at::Device device);
// REQUIRES: a GPU. The norm has room for the sums of spans of these sizes.
[[nodiscard]] std::unique_ptr<DeviceNorm> device_norm(at::Device device,
                                                      std::span<const cuda::SquaresSpan> sizes);
[[nodiscard]] std::unique_ptr<DeviceEvents> device_events(at::Device device);
// Returns `options` with the pages for copies to and from the device.
[[nodiscard]] TierOptions with_dma(TierOptions options, at::Device device);

// Makes GPU `index` the calling thread's current device, and gives the thread a stream of its own
// on it. A rank calls this function first on its own thread, which then executes programs. Throws
// Error, and ConfigError as device_copies().
void use_gpu(int index);

// Name of GPU `index`, from the driver. Throws as use_gpu().
[[nodiscard]] std::string gpu_name(int index);

// The optimizer's updates of memory of `device`: the rule's host function or CUDA function. On a
// GPU they are enqueued behind the calling thread's earlier work, many spans a launch. `clip`: as
// launch_adamw(); null on the host. Throws as device_copies().
using UpdateKernel = std::function<void(std::span<const UpdateSpan>, const cuda::StepClip* clip)>;
[[nodiscard]] UpdateKernel device_update(const OptimizerRule& rule, at::Device device);

}  // namespace sluice
