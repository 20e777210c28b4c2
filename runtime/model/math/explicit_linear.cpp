#include "runtime/model/math/explicit_linear.hpp"

#include <ATen/ops/addmm.h>

#include <utility>

#include "runtime/model/math/fp32_matmul.hpp"
#include "runtime/model/math/wide_product.hpp"

namespace sluice {
namespace {

thread_local MatmulType mode = MatmulType::kNative;

}  // namespace

MatmulMode::MatmulMode(MatmulType type) : outer_(std::exchange(mode, type)) {}
MatmulMode::~MatmulMode() { mode = outer_; }

void linear(at::Tensor y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (mode == MatmulType::kFp32) {
    fp32_matmul({.c = y, .a = x, .b = weight.t(), .bias = bias});
  } else {
    at::addmm_out(y, bias, x, weight.t());
  }
}

void linear_add(at::Tensor y, const at::Tensor& x, const at::Tensor& weight) {
  if (mode == MatmulType::kFp32) {
    fp32_matmul({.c = y, .a = x, .b = weight.t(), .accumulate = true});
  } else {
    at::addmm_out(y, y, x, weight.t());
  }
}

void linear_input_gradient(at::Tensor dx, const at::Tensor& dy, const at::Tensor& weight,
                           bool accumulate) {
  if (mode == MatmulType::kFp32) {
    fp32_matmul({.c = dx, .a = dy, .b = weight, .accumulate = accumulate});
  } else {
    at::addmm_out(dx, dx, dy, weight, accumulate ? 1 : 0, 1);
  }
}

void linear_weight_gradient(GradTarget& target, const at::Tensor& dy, const at::Tensor& x) {
  if (!target.wanted()) return;
  if (mode == MatmulType::kFp32 || x.scalar_type() == c10::ScalarType::Float) {
    fp32_matmul({.c = target.grad, .a = dy.t(), .b = x, .accumulate = target.accumulate});
  } else {
    wide_product(target.grad, dy.t(), x, target.accumulate);
  }
  target.accumulate = true;
}

GradTarget rows_of(const GradTarget& target, std::int64_t row, std::int64_t rows) {
  return {target.grad.narrow(0, row, rows), target.accumulate};
}

}  // namespace sluice
