#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>

#include "runtime/model/gpu_path.hpp"
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
  const bool wide = mixed || meta_stands_for_gpu();  // a GPU's statistics are fp32
  const auto options = wide ? input.options().dtype(c10::ScalarType::Float) : input.options();
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
  if (meta_stands_for_gpu()) return {dx, dweight, dbias};
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

// Attention on a GPU: the tensors that libtorch's CUDA operators allocate
// (aten/src/ATen/native/transformers/cuda). Theirs are [B, S, heads, D], seen as [B, heads, S, D].
Tensor by_token(const Tensor& like, c10::ScalarType type) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)},
                   like.options().dtype(type));
}
Tensor by_token(const Tensor& like) { return by_token(like, like.scalar_type()); }

// fp32 numbers of each head and query, the queries rounded up.
Tensor of_queries(const Tensor& q, std::int64_t multiple) {
  const std::int64_t rows = (q.size(2) + multiple - 1) / multiple * multiple;
  return at::empty({q.size(0), q.size(1), rows}, q.options().dtype(c10::ScalarType::Float));
}
Tensor seed_of(const Tensor& q) { return at::empty({2}, q.options().dtype(c10::ScalarType::Long)); }

using FlashResult =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

FlashResult flash_attention(const Tensor& q, const Tensor& k, const Tensor& /*v*/,
                            double /*dropout*/, bool /*causal*/, bool /*debug*/,
                            std::optional<double> /*scale*/) {
  return {by_token(q).transpose(1, 2),
          of_queries(q, 1),
          Tensor(),
          Tensor(),
          q.sym_size(2),
          k.sym_size(2),
          seed_of(q),
          seed_of(q),
          Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& /*grad*/, const Tensor& q, const Tensor& k, const Tensor& v,
    const Tensor& /*out*/, const Tensor& /*lse*/, const Tensor& /*starts_q*/,
    const Tensor& /*starts_k*/, c10::SymInt /*longest_q*/, c10::SymInt /*longest_k*/,
    double /*dropout*/, bool /*causal*/, const Tensor& /*seed*/, const Tensor& /*offset*/,
    std::optional<double> /*scale*/) {
  constexpr std::int64_t kRows = 128, kColumns = 32;
  const std::tuple<Tensor, Tensor, Tensor> result{
      by_token(q).transpose(1, 2), by_token(k).transpose(1, 2), by_token(v).transpose(1, 2)};
  const Tensor row_sums = of_queries(q, kRows);
  const Tensor wide_dq =  // added to by blocks of keys
      at::empty({row_sums.numel(), (q.size(3) + kColumns - 1) / kColumns * kColumns},
                row_sums.options());
  if (q.size(1) == k.size(1)) return result;
  const Tensor each_dk = by_token(q), each_dv = by_token(q);  // of each query head, then summed
  return result;
}

constexpr std::int64_t kEfficientRows = 32;

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention(
    const Tensor& q, const Tensor& /*k*/, const Tensor& /*v*/,
    const std::optional<Tensor>& /*mask*/, bool /*keeps*/, double /*dropout*/, bool /*causal*/,
    std::optional<double> /*scale*/) {
  return {by_token(q).transpose(1, 2), of_queries(q, kEfficientRows), seed_of(q), seed_of(q)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention_backward(
    const Tensor& /*grad*/, const Tensor& q, const Tensor& k, const Tensor& v,
    const Tensor& /*mask*/, const Tensor& /*out*/, const Tensor& /*lse*/, const Tensor& /*seed*/,
    const Tensor& /*offset*/, double /*dropout*/, std::array<bool, 4> /*wanted*/, bool /*causal*/,
    std::optional<double> /*scale*/) {
  std::vector<Tensor> grads;
  if (q.storage().is_alias_of(k.storage()) && q.storage().is_alias_of(v.storage())) {
    const Tensor all = at::empty({q.size(0), q.size(2), 3, q.size(1), q.size(3)}, q.options());
    for (int i = 0; i < 3; ++i) grads.push_back(all.select(2, i).transpose(1, 2));
  } else {
    for (const Tensor* x : {&q, &k, &v}) grads.push_back(by_token(*x).transpose(1, 2));
  }
  const Tensor products = by_token(q, c10::ScalarType::Float);  // grad * out, summed by row
  const Tensor row_sums = of_queries(q, 1), in_order = of_queries(q, 1);
  return {grads[0], grads[1], grads[2], Tensor()};
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
    library.impl("_scaled_dot_product_flash_attention", TORCH_FN(flash_attention));
    library.impl("_scaled_dot_product_flash_attention_backward",
                 TORCH_FN(flash_attention_backward));
    library.impl("_scaled_dot_product_efficient_attention", TORCH_FN(efficient_attention));
    library.impl("_scaled_dot_product_efficient_attention_backward",
                 TORCH_FN(efficient_attention_backward));
  });
}

}  // namespace sluice
