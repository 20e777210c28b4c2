// Linear layers of one input with their outputs side by side in the columns of one tensor: q, k, v;
// gate and up. If the matrices are neighbours in memory, as in a flat group whose sizes keep its
// alignment, each product is one GEMM over all of them; else one GEMM for each matrix, into its
// columns; such columns of dy are not measured. The bytes are the same. Shapes and rules as in
// explicit_linear.hpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "runtime/model/math/explicit_kernels.hpp"
#include "runtime/model/math/measured.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// One view over contiguous tensors that are neighbours in one storage, stacked along their first
// dimension; undefined if they are not.
[[nodiscard]] at::Tensor joined(std::span<const at::Tensor> parts);

// y [N, O1 + O2 + ...], x [N, I], weights [Oi, I], biases [Oi] or empty.
void stacked_linear(const at::Tensor& y, const Measured& x, std::span<const at::Tensor> weights,
                    std::span<const at::Tensor> biases = {});

// dx = dy W.
void stacked_input_gradient(const at::Tensor& dx, const Measured& dy,
                            std::span<const at::Tensor> weights);

// targets: one a matrix, of rows[i] rows.
void stacked_weight_gradient(std::span<const GradTarget> targets,
                             std::span<const std::int64_t> rows, const Measured& dy,
                             const Measured& x);
// stacked_weight_gradient() and then stacked_input_gradient(), as linear_gradients().
struct StackedBackward {
  const Measured& dy;
  const Measured& x;
  std::span<const at::Tensor> weights;
};
void stacked_gradients(const at::Tensor& dx, std::span<const GradTarget> targets,
                       std::span<const std::int64_t> rows, const StackedBackward& of);
// As bias_gradient().
void stacked_bias_gradient(std::span<const GradTarget> targets, std::span<const std::int64_t> rows,
                           const at::Tensor& dy, RowSums* sums = nullptr);

}  // namespace sluice
