#include "runtime/model/blocks/explicit_branch.hpp"

#include <ATen/ops/add.h>

#include <algorithm>

#include "kernels/cpu/layer_norm.hpp"
#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "runtime/model/math/stacked_linear.hpp"

namespace sluice {

// A quarter, but no fewer than 256: GEMMs of 256 rows still run at the full rate (measured: 128
// lose 2-10 %). A GPU takes up to 8192 rows at once: each chunk is four launches, and an H100 needs
// some thousands of rows for whole waves, and whole blocks of rows for sums over them.
std::int64_t chunk_rows(const at::Tensor& rows) {
  const std::int64_t N = rows.size(0), quarter = (N + 3) / 4;
  if (!takes_gpu_path(rows)) return std::min(N, std::max<std::int64_t>(256, quarter));
  const std::int64_t whole = (quarter + kSumRows - 1) / kSumRows * kSumRows;
  return std::min(N, std::max<std::int64_t>(8192, whole));
}

void residual_linear(at::Tensor out, const BranchEnd& end) {
  if (takes_gpu_path(out)) {
    linear(out, end.x, end.weight, {});
    device::end_branch({out, out, end.bias, end.residual, end.dropout});
  } else if (end.dropout.active()) {
    linear(out, end.x, end.weight, end.bias);
    drop_out(out, out, end.residual, end.dropout);
  } else if (end.x.tensor.scalar_type() == c10::ScalarType::Float) {
    if (end.bias.defined()) {
      at::add_out(out, end.residual, end.bias);
    } else {
      out.copy_(end.residual);
    }
    linear_add(out, end.x, end.weight);
  } else {
    linear(out, end.x, end.weight, end.bias);
    out.add_(end.residual);
  }
}

Measured normed_residual_linear(const at::Tensor& out, const BranchEnd& end,
                                const BlockNorm& next) {
  if (takes_gpu_path(out)) {
    linear(out, end.x, end.weight, {});
    const Measured y_NH = to_measure(empty_tensor(out.sizes(), out.scalar_type(), out.device()));
    device::end_branch({out, out, end.bias, end.residual, end.dropout}, y_NH, next.on_device());
    return y_NH;
  }
  residual_linear(out, end);
  at::Tensor y_NH = empty_tensor(out.sizes(), out.scalar_type(), out.device());
  next.forward(y_NH);
  return y_NH;
}

void residual_sum(const at::Tensor& out, const BranchSum& end) {
  if (takes_gpu_path(out)) {
    return device::end_branch({out, out, end.bias, end.residual, end.dropout});
  }
  if (end.bias.defined()) out.add_(end.bias);
  if (end.dropout.active()) {
    drop_out(out, out, end.residual, end.dropout);
  } else {
    out.add_(end.residual);
  }
}

at::Tensor branch_gradient(const at::Tensor& dy_NH, const DropoutPlace& place) {
  if (!place.active()) return dy_NH;
  at::Tensor masked_NH = empty_tensor(dy_NH.sizes(), dy_NH.scalar_type(), dy_NH.device());
  drop_out(masked_NH, dy_NH, {}, place);
  return masked_NH;
}

}  // namespace sluice
