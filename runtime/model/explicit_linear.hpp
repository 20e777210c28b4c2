// A linear layer's three products on out= operators: y = x W^T + b. Rows are tokens: x [N, I],
// y [N, O], weight [O, I], bias [O], contiguous or rows/columns narrowed from contiguous.
//
// 16-bit products run in their dtype with fp32 sums inside: on a CPU with AVX512_BF16 four times
// the fp32 rate (464 against 105 GFLOP/s a core, EPYC, libtorch 2.11). Their weight gradients are
// rounded to 16 bits a product, as autograd's are, but added up in fp32, a few output rows at a
// time so that no tensor of the weight's size is made.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/unit.hpp"

namespace sluice {

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
