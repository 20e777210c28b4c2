#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>

#include "runtime/model/meta_kernels.hpp"

namespace sluice {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, c10::SymIntArrayRef normalized,
                                              const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& /*bias*/,
                                              double /*eps*/) {
  std::vector<std::int64_t> stat_shape = input.sizes().vec();
  for (std::size_t i = 0; i < normalized.size(); ++i) stat_shape[stat_shape.size() - 1 - i] = 1;
  const bool mixed =
      weight.has_value() && weight->defined() && weight->scalar_type() != input.scalar_type();
  const auto options = mixed ? input.options().dtype(c10::ScalarType::Float) : input.options();
  return {at::empty_like(input, at::MemoryFormat::Contiguous), at::empty(stat_shape, options),
          at::empty(stat_shape, options)};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(
    const Tensor& grad, const Tensor& input, c10::SymIntArrayRef normalized, const Tensor& /*mean*/,
    const Tensor& /*rstd*/, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    std::array<bool, 3> mask) {
  (void)grad;
  Tensor dx;
  Tensor dweight;
  Tensor dbias;
  if (mask[0]) dx = at::empty_like(input, at::MemoryFormat::Contiguous);
  if (mask[1]) dweight = at::empty_like(*weight, at::MemoryFormat::Contiguous);
  if (mask[2]) dbias = at::empty_like(*bias, at::MemoryFormat::Contiguous);
  std::int64_t n = 1;
  for (const c10::SymInt& dim : normalized) n *= dim.expect_int();
  // Each thread's partial sums of the weight's and the bias's gradient.
  const Tensor partial =
      at::empty({2, at::get_num_threads(), n}, input.options().dtype(c10::ScalarType::Float));
  return {dx, dweight, dbias};
}

// The CPU kernel's tiling (measured: every size of its scratch is reproduced to the byte in fp32).
struct AttentionTile {
  explicit AttentionTile(const Tensor& q, const Tensor& k)
      : q_rows(std::min<std::int64_t>(q.size(2), q.size(2) >= 768   ? 256
                                                 : q.size(2) >= 192 ? 64
                                                                    : 32)),
        kv_rows(std::min<std::int64_t>(k.size(2), 512)) {}
  std::int64_t q_rows;
  std::int64_t kv_rows;
};

Tensor per_thread(std::int64_t elems, const Tensor& like, c10::ScalarType type) {
  return at::empty({at::get_num_threads(), elems}, like.options().dtype(type));
}

// A 16-bit run also keeps each tile in its own type.
std::int64_t narrow_elems(const Tensor& q, std::int64_t elems) {
  return q.scalar_type() == c10::ScalarType::Float ? 0 : elems;
}

std::tuple<Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& /*v*/,
                                     double /*dropout*/, bool /*causal*/,
                                     const std::optional<Tensor>& /*mask*/,
                                     std::optional<double> /*scale*/) {
  const Tensor out = at::empty_like(q);  // in the order of q's strides
  const Tensor lse =
      at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(c10::ScalarType::Float))
          .transpose(1, 2);
  const AttentionTile tile(q, k);
  // Scores, running maximum and sum, output rows.
  const Tensor wide =
      per_thread(tile.q_rows * (tile.kv_rows + 2 + q.size(3)), q, c10::ScalarType::Float);
  const Tensor narrow = per_thread(narrow_elems(q, tile.q_rows * tile.kv_rows), q, q.scalar_type());
  return {out, lse};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& grad, const Tensor& q,
                                                      const Tensor& k, const Tensor& v,
                                                      const Tensor& /*out*/, const Tensor& /*lse*/,
                                                      double /*dropout*/, bool /*causal*/,
                                                      const std::optional<Tensor>& /*mask*/,
                                                      std::optional<double> /*scale*/) {
  const auto like = [](const Tensor& x) {
    return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
  };
  const std::tuple<Tensor, Tensor, Tensor> result{like(q), like(k), like(v)};
  const Tensor dense = grad.transpose(1, 2).contiguous();  // a copy unless it is [B, S, heads, D]
  const AttentionTile tile(q, k);
  // Weights, their gradient, and the row sums of grad * out.
  const Tensor wide = per_thread(tile.q_rows * (2 * tile.kv_rows + 1), q, c10::ScalarType::Float);
  const Tensor narrow =
      per_thread(narrow_elems(q, 2 * tile.q_rows * tile.kv_rows), q, q.scalar_type());
  return result;
}

}  // namespace

void register_meta_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                                  __LINE__);
    library.impl("native_layer_norm", TORCH_FN(layer_norm));
    library.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
    library.impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(attention));
    library.impl("_scaled_dot_product_flash_attention_for_cpu_backward",
                 TORCH_FN(attention_backward));
  });
}

}  // namespace sluice
