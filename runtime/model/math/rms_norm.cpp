#include "runtime/model/math/rms_norm.hpp"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "runtime/model/blocks/classifier_head.hpp"
#include "runtime/model/math/dry_pieces.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

constexpr c10::ScalarType kWide = c10::ScalarType::Float;
// Rows in flight: the temporaries are fp32 and several, and stay in the cache this way.
constexpr std::int64_t kChunkRows = 256;

}  // namespace

at::Tensor rms_norm_rstd(const at::Tensor& x, double eps) {
  const at::Tensor wide = x.to(wide_type(x));
  return wide.mul(wide).mean({-1}, true).add(eps).rsqrt();
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(wide_type(x));
  const at::Tensor normed = wide.mul(rms_norm_rstd(wide, eps));
  return normed.to(x.scalar_type()).mul(weight);
}

at::Tensor rms_norm_backward(const RmsNormBackward& given, GradTarget weight_grad) {
  const at::Tensor dx_NH = at::empty_like(given.x_NH);
  const at::Tensor weight_H = given.weight_H.to(kWide);
  const std::int64_t count = given.x_NH.size(0);
  for (std::int64_t row = 0; row < count;
       row = next_piece(row, kChunkRows, count, dx_NH.is_meta())) {
    const std::int64_t rows = std::min(kChunkRows, count - row);
    const at::Tensor rstd = given.rstd_N1.narrow(0, row, rows);
    const at::Tensor dy = given.dy_NH.narrow(0, row, rows).to(kWide);
    const at::Tensor normed = given.x_NH.narrow(0, row, rows).to(kWide).mul(rstd);
    if (weight_grad.wanted()) store_gradient(weight_grad, dy.mul(normed).sum({0}));
    weight_grad.accumulate = true;
    const at::Tensor g = dy.mul(weight_H);
    const at::Tensor along = g.mul(normed).mean({-1}, true);  // what the scale takes out again
    dx_NH.narrow(0, row, rows).copy_(g.sub(normed.mul(along)).mul(rstd));
  }
  return dx_NH;
}

}  // namespace sluice
