// The host's way to an engine's device: memcpy where that is the host, else what the CUDA module
// brings (cuda_tiers.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "kernels/cpu/adamw.hpp"
#include "runtime/engine/tier_limits.hpp"

namespace sluice {

// Throw ConfigError where the device needs the CUDA module and it cannot be loaded.
[[nodiscard]] std::shared_ptr<DeviceCopies> device_copies(const TierOptions& options,
                                                          at::Device device);
// `options` with the pages that copies from and to the device are made of.
[[nodiscard]] TierOptions with_dma(TierOptions options, at::Device device);

// Makes GPU `index` the calling thread's, for whatever takes the thread's device: a rank's first
// step on its own thread. Throws ConfigError likewise, and Error.
void use_gpu(int index);

// What GPU `index` calls itself. Throws likewise.
[[nodiscard]] std::string gpu_name(int index);

// What updates memory of `device`: adamw() on the host, its CUDA twin on a GPU, where it is only
// enqueued behind what the calling thread has issued. Throws as device_copies().
[[nodiscard]] std::function<void(const AdamWArgs&)> device_adamw(at::Device device);

}  // namespace sluice
