#include "runtime/model/explicit_linear.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

namespace sluice {
namespace {

// Output rows of a 16-bit weight gradient made at a time; fewer lose GEMM rate.
constexpr std::int64_t kTileRows = 256;

void narrow_weight_gradient(const GradTarget& target, const at::Tensor& dy, const at::Tensor& x) {
  const std::int64_t out = dy.size(1);
  const at::Tensor tile = at::empty({std::min(out, kTileRows), x.size(1)}, x.options());
  for (std::int64_t row = 0; row < out; row += kTileRows) {
    const std::int64_t rows = std::min(kTileRows, out - row);
    at::Tensor part = tile.narrow(0, 0, rows);
    at::mm_out(part, dy.narrow(1, row, rows).t(), x);
    const at::Tensor grad = target.grad.narrow(0, row, rows);
    if (target.accumulate) {
      grad.add_(part);
    } else {
      grad.copy_(part);
    }
  }
}

}  // namespace

void linear(at::Tensor y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  at::addmm_out(y, bias, x, weight.t());
}

void linear_add(at::Tensor y, const at::Tensor& x, const at::Tensor& weight) {
  at::addmm_out(y, y, x, weight.t());
}

void linear_input_gradient(at::Tensor dx, const at::Tensor& dy, const at::Tensor& weight,
                           bool accumulate) {
  at::addmm_out(dx, dx, dy, weight, accumulate ? 1 : 0, 1);
}

void linear_weight_gradient(GradTarget& target, const at::Tensor& dy, const at::Tensor& x) {
  if (x.scalar_type() == c10::ScalarType::Float) {
    at::Tensor grad = target.grad;
    at::addmm_out(grad, grad, dy.t(), x, target.accumulate ? 1 : 0, 1);
  } else {
    narrow_weight_gradient(target, dy, x);
  }
  target.accumulate = true;
}

GradTarget rows_of(const GradTarget& target, std::int64_t row, std::int64_t rows) {
  return {target.grad.narrow(0, row, rows), target.accumulate};
}

}  // namespace sluice
