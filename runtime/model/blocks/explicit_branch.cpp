#include "runtime/model/blocks/explicit_branch.hpp"

#include <ATen/ops/add.h>

#include <algorithm>

#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/math/explicit_linear.hpp"
#include "runtime/model/math/stacked_linear.hpp"

namespace sluice {

// A quarter, but no fewer than 256: GEMMs of 256 rows still run at the full rate (measured: 128
// lose 2-10 %).
std::int64_t chunk_rows(std::int64_t rows) {
  return std::min(rows, std::max<std::int64_t>(256, (rows + 3) / 4));
}

void residual_linear(at::Tensor out, const BranchEnd& end) {
  if (end.dropout.active()) {
    linear_maybe_biased(out, end.x, end.weight, end.bias);
    drop_out(out, out, end.residual, end.dropout);
  } else if (end.x.scalar_type() == c10::ScalarType::Float) {
    if (end.bias.defined()) {
      at::add_out(out, end.residual, end.bias);
    } else {
      out.copy_(end.residual);
    }
    linear_add(out, end.x, end.weight);
  } else {
    linear_maybe_biased(out, end.x, end.weight, end.bias);
    out.add_(end.residual);
  }
}

void residual_sum(at::Tensor out, const BranchSum& end) {
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
