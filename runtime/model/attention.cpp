#include "runtime/model/attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <limits>

#include "runtime/model/dropout.hpp"

namespace sluice {
namespace {

at::Tensor attention_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  double dropout_p, const UnitCall& call, std::uint64_t site) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor future =
      at::full({q.size(2), q.size(2)}, -std::numeric_limits<float>::infinity(), q.options())
          .triu(1);
  const at::Tensor weights = q.matmul(k.transpose(2, 3)).mul(scale).add(future).softmax(-1);
  return dropout(weights, dropout_p, call, site).matmul(v);
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            double dropout_p, const UnitCall& call, std::uint64_t dropout_site) {
  if (call.training && dropout_p > 0) {
    return attention_with_dropout(q, k, v, dropout_p, call, dropout_site);
  }
  // The fused operator by name: on the meta device the chooser would take the s x s path, and the
  // dry run would not be of the code that runs.
  if (!q.is_cuda()) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true));
  }
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
}

}  // namespace sluice
