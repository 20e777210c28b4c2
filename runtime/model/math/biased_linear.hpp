// A linear layer with a bias for autograd units. On a GPU the bias's gradient is a matrix-vector
// product: libtorch's column sum takes scratch of up to 132 MiB for 8192 rows of 4096.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice {

// x weight^T + bias: [..., I], [O, I], [O] -> [..., O]. Differentiable. Off a GPU it is at::linear.
[[nodiscard]] at::Tensor biased_linear(const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& bias);

// The same values and gradients, with the product for the bias's gradient on any device.
[[nodiscard]] at::Tensor linear_with_bias_product(const at::Tensor& x, const at::Tensor& weight,
                                                  const at::Tensor& bias);

}  // namespace sluice
