// The products of a linear layer with 8-bit operands, on a GPU of capability 8.9 or higher. Rows
// are tokens, as in explicit_linear.hpp. Each operand is rounded to FP8 (kernels/cpu/fp8_core.hpp)
// into scratch of the call: x and the weight to E4M3, dy to E5M2, each with one scale, from its
// largest magnitude. Sums are fp32. An operand without row_maxima is scanned first.
//
// Enqueues on the current stream; the host waits for nothing. Dry runs allocate the same scratch.
// REQUIRES: bf16; columns, and elements between rows, are multiples of 16.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/math/measured.hpp"

namespace sluice::device {

// y [N, O] = x W^T + bias, which may be undefined.
void fp8_linear(const at::Tensor& y, const Measured& x, const at::Tensor& weight,
                const at::Tensor& bias);
// dx [N, I] = dy W, or += dy W.
void fp8_input_gradient(const at::Tensor& dx, const Measured& dy, const at::Tensor& weight,
                        bool accumulate);
// target (fp32) [O, I] = dy^T x, or += dy^T x.
void fp8_weight_gradient(const at::Tensor& target, const Measured& dy, const Measured& x,
                         bool accumulate);

// Both gradients, with their bits: dx = dy W, target = or += dy^T x. dx may lie in x's memory. dy
// is read half as often as by two calls.
struct Fp8Gradients {
  const at::Tensor& dx;
  const at::Tensor& target;
  bool accumulate;
};
void fp8_gradients(const Fp8Gradients& to, const Measured& dy, const at::Tensor& weight,
                   const Measured& x);

}  // namespace sluice::device
