// From tensors to the kernels' raw pointers, with one check of dtype, layout and device.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace sluice {

[[nodiscard]] inline c10::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return c10::ScalarType::Float;
    case DType::kBFloat16:
      return c10::ScalarType::BFloat16;
    case DType::kFloat16:
      return c10::ScalarType::Half;
  }
  return c10::ScalarType::Float;
}

[[nodiscard]] inline DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Float:
      return DType::kFloat32;
    case c10::ScalarType::BFloat16:
      return DType::kBFloat16;
    case c10::ScalarType::Half:
      return DType::kFloat16;
    default:
      throw Error("internal: a tensor of a type that is none of fp32, bf16, fp16");
  }
}

// Type in which norms and rotations compute: fp32, or double in a test's oracle.
[[nodiscard]] inline c10::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == c10::ScalarType::Double ? c10::ScalarType::Double
                                                    : c10::ScalarType::Float;
}

// The elements of a contiguous host tensor of type T.
template <typename T>
[[nodiscard]] T* host_data(const at::Tensor& tensor) {
  check(tensor.is_cpu() && tensor.is_contiguous(), "a contiguous host tensor is needed");
  return tensor.data_ptr<T>();
}

[[nodiscard]] inline void* host_bytes(const at::Tensor& tensor) {
  check(tensor.is_cpu() && tensor.is_contiguous(), "a contiguous host tensor is needed");
  return tensor.data_ptr();
}

}  // namespace sluice
