// The host's way to an engine's device: memcpy where that is the host, else what the CUDA module
// brings (cuda_tiers.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "kernels/cpu/update/update_span.hpp"
#include "runtime/engine/tiers/tier_limits.hpp"
#include "zero/optimizer_rule.hpp"

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

// The optimizer's update of memory of `device`: the rule's function on the host, its CUDA twin on a
// GPU. On a GPU the update is enqueued behind the work that the calling thread has issued. Throws
// as device_copies().
[[nodiscard]] std::function<void(const UpdateSpan&)> device_update(const OptimizerRule& rule,
                                                                   at::Device device);

}  // namespace sluice
