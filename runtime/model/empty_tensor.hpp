// at::empty behind one translation unit: any header of ATen/ops more than doubles what a source
// costs to compile (shared by the engine's sources).
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice {

// Contiguous, uninitialised.
[[nodiscard]] at::Tensor empty_tensor(at::IntArrayRef sizes, c10::ScalarType type,
                                      at::Device device = c10::DeviceType::CPU);

}  // namespace sluice
