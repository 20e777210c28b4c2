// at::empty in one translation unit: any header of ATen/ops more than doubles the compile time of a
// source (the engine's sources share this one).
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice {

// Contiguous, uninitialised.
[[nodiscard]] at::Tensor empty_tensor(at::IntArrayRef sizes, c10::ScalarType type,
                                      at::Device device = c10::DeviceType::CPU);

}  // namespace sluice
