// A linear layer's three products on out= operators: y = x W^T + b. Rows are tokens: x [N, I],
// y [N, O], weight [O, I], bias [O], contiguous or rows/columns narrowed from contiguous.
//
// 16-bit products run in one of two ways (MatmulMode); fp32 ones are plain GEMMs either way.
// - MatmulType::kNative: in their dtype with fp32 sums inside, the faster one where the CPU has
//   instructions for it.
// - MatmulType::kFp32: in fp32 (fp32_matmul.hpp) with results rounded once. For CPUs only.
// Either way a weight's gradient goes unrounded from the GEMM to its fp32 buffer where the BLAS can
// do that (wide_product.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/model_options.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// How this thread runs 16-bit products while the object lives, as c10::AutoGradMode says whether
// there is a graph; natively without one. Scopes nest.
class MatmulMode {
 public:
  explicit MatmulMode(MatmulType type);
  ~MatmulMode();
  MatmulMode(const MatmulMode&) = delete;
  MatmulMode& operator=(const MatmulMode&) = delete;

 private:
  const MatmulType outer_;
};

void linear(at::Tensor y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// y += x W^T.
void linear_add(at::Tensor y, const at::Tensor& x, const at::Tensor& weight);

// dx = dy W, or dx += dy W.
void linear_input_gradient(at::Tensor dx, const at::Tensor& dy, const at::Tensor& weight,
                           bool accumulate = false);

// target (fp32) = dy^T x, or += where target.accumulate. Sets target.accumulate, so that the next
// rows of the same micro-batch add to it.
void linear_weight_gradient(GradTarget& target, const at::Tensor& dy, const at::Tensor& x);

// Rows [row, row + rows) of the gradient's tensor, e.g. one of q, k, v in a fused projection.
[[nodiscard]] GradTarget rows_of(const GradTarget& target, std::int64_t row, std::int64_t rows);

}  // namespace sluice
