#include "runtime/model/math/explicit_linear.hpp"

#include <ATen/ops/addmm.h>

#include <algorithm>
#include <utility>

#include "kernels/cpu/fp8.hpp"
#include "runtime/model/device/fp8_products.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/fp32_matmul.hpp"
#include "runtime/model/math/wide_product.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

thread_local MatmulType mode = MatmulType::kNative;

bool eight_bits_on_gpu(const at::Tensor& x) {
  return mode == MatmulType::kFp8 && takes_gpu_path(x);
}

// The values that an 8-bit product reads, as bf16. Meta tensors only allocate.
at::Tensor rounded(const at::Tensor& x, Fp8Format format) {
  check(dtype_of(x) == DType::kBFloat16, "FP8 products have bf16 operands");
  const at::Tensor values = empty_tensor(x.sizes(), x.scalar_type(), x.device());
  if (x.is_meta()) return values;
  check(x.is_cpu() && x.stride(1) == 1, "an operand has contiguous rows in host memory");
  round_to_fp8(static_cast<std::uint16_t*>(values.data_ptr()),
               {.data = static_cast<const std::uint16_t*>(x.data_ptr()),
                .rows = x.size(0),
                .columns = x.size(1),
                .row_stride = std::max(x.stride(0), x.size(1))},
               format);
  return values;
}

// Of x or a weight.
at::Tensor in_e4m3(const at::Tensor& x) { return rounded(x, Fp8Format::kE4M3); }
// Of a gradient.
at::Tensor in_e5m2(const at::Tensor& dy) { return rounded(dy, Fp8Format::kE5M2); }

}  // namespace

MatmulMode::MatmulMode(MatmulType type) : outer_(std::exchange(mode, type)) {}
MatmulMode::~MatmulMode() { mode = outer_; }

Measured to_measure(at::Tensor x) {
  if (!eight_bits_on_gpu(x)) return x;
  at::Tensor maxima = empty_tensor({x.size(0)}, c10::ScalarType::Int, x.device());
  return {std::move(x), std::move(maxima)};
}

void linear(at::Tensor y, const Measured& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (eight_bits_on_gpu(y)) return device::fp8_linear(y, x, weight, bias);
  if (mode == MatmulType::kFp8) {
    fp32_matmul({.c = y, .a = in_e4m3(x.tensor), .b = in_e4m3(weight).t(), .bias = bias});
  } else if (mode == MatmulType::kFp32) {
    fp32_matmul({.c = y, .a = x.tensor, .b = weight.t(), .bias = bias});
  } else if (bias.defined()) {
    at::addmm_out(y, bias, x.tensor, weight.t());
  } else {
    at::addmm_out(y, y, x.tensor, weight.t(), 0, 1);
  }
}

void linear_add(at::Tensor y, const Measured& x, const at::Tensor& weight) {
  if (mode == MatmulType::kFp32) {
    fp32_matmul({.c = y, .a = x.tensor, .b = weight.t(), .accumulate = true});
  } else {
    at::addmm_out(y, y, x.tensor, weight.t());
  }
}

void linear_input_gradient(at::Tensor dx, const Measured& dy, const at::Tensor& weight,
                           bool accumulate) {
  if (eight_bits_on_gpu(dx)) return device::fp8_input_gradient(dx, dy, weight, accumulate);
  if (mode == MatmulType::kFp8) {
    fp32_matmul({.c = dx, .a = in_e5m2(dy.tensor), .b = in_e4m3(weight), .accumulate = accumulate});
  } else if (mode == MatmulType::kFp32) {
    fp32_matmul({.c = dx, .a = dy.tensor, .b = weight, .accumulate = accumulate});
  } else {
    at::addmm_out(dx, dx, dy.tensor, weight, accumulate ? 1 : 0, 1);
  }
}

void linear_weight_gradient(GradTarget& target, const Measured& dy, const Measured& x) {
  if (!target.wanted()) return;
  if (eight_bits_on_gpu(target.grad)) {
    device::fp8_weight_gradient(target.grad, dy, x, target.accumulate);
  } else if (mode == MatmulType::kFp8) {
    fp32_matmul({.c = target.grad,
                 .a = in_e5m2(dy.tensor).t(),
                 .b = in_e4m3(x.tensor),
                 .accumulate = target.accumulate});
  } else if (mode == MatmulType::kFp32 || x.tensor.scalar_type() == c10::ScalarType::Float) {
    fp32_matmul(
        {.c = target.grad, .a = dy.tensor.t(), .b = x.tensor, .accumulate = target.accumulate});
  } else {
    wide_product(target.grad, dy.tensor.t(), x.tensor, target.accumulate);
  }
  target.accumulate = true;
}

void linear_gradients(const at::Tensor& dx, GradTarget& target, const LinearBackward& of) {
  if (target.wanted() && eight_bits_on_gpu(dx)) {
    device::fp8_gradients({dx, target.grad, target.accumulate}, of.dy, of.weight, of.x);
    target.accumulate = true;
    return;
  }
  linear_weight_gradient(target, of.dy, of.x);
  linear_input_gradient(dx, of.dy, of.weight);
}

GradTarget rows_of(const GradTarget& target, std::int64_t row, std::int64_t rows) {
  return {target.grad.narrow(0, row, rows), target.accumulate};
}

}  // namespace sluice
