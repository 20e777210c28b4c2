// Activation functions of the MLP and their gradients, on the compute threads. Arithmetic is fp32.
// Functions with a `dtype` argument read and write n elements of that dtype. Element-wise: bits do
// not depend on instruction set, threads or cuts. The output may be the buffer of one input. All
// spans of a call must have equal length, else Error.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

// tanh form: y = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
void gelu_forward(std::span<float> y, std::span<const float> x);
void gelu_forward(void* y, const void* x, DType dtype, std::int64_t n);
// dx = dy * gelu'(x). Needs only the input of the forward. Unless `y` is null, also writes the
// output of gelu_forward to `y`, bit for bit. y may be dy and must not be dx.
void gelu_backward(std::span<float> dx, std::span<const float> x, std::span<const float> dy);
void gelu_backward(void* dx, const void* x, const void* dy, DType dtype, std::int64_t n,
                   void* y = nullptr);

// y = silu(gate) * up, silu(a) = a * sigmoid(a).
void swiglu_forward(std::span<float> y, std::span<const float> gate, std::span<const float> up);
// The outputs may be the buffers of `gate` and `up`, or one of them that of `dy`. The two outputs
// must not be the same buffer.
void swiglu_backward(std::span<float> d_gate, std::span<float> d_up, std::span<const float> gate,
                     std::span<const float> up, std::span<const float> dy);

// gate and up side by side, as one product with both matrices yields them: `rows` rows of 2 * width
// elements of dtype, gate first.
struct GateUp {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
// y: [rows, width] of dtype; must not overlap gate_up.
void swiglu_forward(void* y, const GateUp& gate_up);
// Replaces gate_up by its gradient. dy: [rows, width] of dtype. Unless `y` is null, also writes the
// output of swiglu_forward to `y`, bit for bit. y may be dy.
void swiglu_backward(const GateUp& gate_up, const void* dy, void* y = nullptr);

}  // namespace sluice
