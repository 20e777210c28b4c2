// The three products of a linear layer on out= operators: y = x W^T + b. Rows are tokens: x [N, I],
// y [N, O], weight [O, I], bias [O], contiguous or rows/columns narrowed from contiguous.
//
// 16-bit products run in one of three ways (MatmulMode); fp32 products are plain GEMMs.
// - MatmulType::kNative: in their dtype with fp32 sums, faster on CPUs with instructions for it.
// - MatmulType::kFp32: in fp32 (fp32_matmul.hpp), results rounded once. For CPUs only.
// - MatmulType::kFp8: bf16 operands are rounded to 8 bits, dy to E5M2, x and W to E4M3, each by the
//   scale of its own largest magnitude. A GPU multiplies the 8-bit operands. A CPU multiplies
//   their values (kernels/cpu/fp8.hpp) as kFp32 does: a check of the arithmetic, not a gain.
//   A result depends on the rows that one call is given.
// In every way a weight's gradient goes unrounded from the GEMM to its fp32 buffer if the BLAS can
// do that (wide_product.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/math/measured.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// Sets this thread's way of 16-bit products for the lifetime of the object, as c10::AutoGradMode
// does for graphs. Without an object: natively. Scopes nest.
class MatmulMode {
 public:
  explicit MatmulMode(MatmulType type);
  ~MatmulMode();
  MatmulMode(const MatmulMode&) = delete;
  MatmulMode& operator=(const MatmulMode&) = delete;

 private:
  const MatmulType outer_;
};

// x [N, H], which a kernel writes next and a product then reads. The result has memory for largest
// magnitudes of rows if this thread's products are 8-bit products of a GPU.
[[nodiscard]] Measured to_measure(at::Tensor x);

// y = x W^T + bias; bias undefined: none.
void linear(at::Tensor y, const Measured& x, const at::Tensor& weight, const at::Tensor& bias);

// y += x W^T, in fp32.
void linear_add(at::Tensor y, const Measured& x, const at::Tensor& weight);

// dx = dy W, or dx += dy W.
void linear_input_gradient(at::Tensor dx, const Measured& dy, const at::Tensor& weight,
                           bool accumulate = false);

// target (fp32) = dy^T x, or += with target.accumulate. Sets target.accumulate, so that the next
// rows of the same micro-batch add to it.
void linear_weight_gradient(GradTarget& target, const Measured& dy, const Measured& x);

// What both gradients of a linear layer read.
struct LinearBackward {
  const Measured& dy;
  const Measured& x;
  const at::Tensor& weight;
};
// linear_weight_gradient() and then linear_input_gradient(), with their bits; dx may lie in x's
// memory. 8-bit products on a GPU read dy half as often as two calls would.
void linear_gradients(const at::Tensor& dx, GradTarget& target, const LinearBackward& of);

// Rows [row, row + rows) of the gradient's tensor, e.g. one of q, k, v in a fused projection.
[[nodiscard]] GradTarget rows_of(const GradTarget& target, std::int64_t row, std::int64_t rows);

}  // namespace sluice
