#include "runtime/model/device/device_attention.hpp"

#include <ATen/ops/_cudnn_attention_backward.h>
#include <ATen/ops/_cudnn_attention_forward.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/cat.h>

#include <array>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/model/attention_choice.hpp"
#include "runtime/model/device/deterministic_operators.hpp"
#include "runtime/model/device/kernel_calls.hpp"
#include "runtime/model/device/product_attention.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/math/varlen_attention.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice::device {
namespace {

using at::Tensor;

// custom_mask_type: a query's key of its own number is the last.
constexpr std::int64_t kCausal = 1;

bool is_wide(const AttentionInput& in) { return in.q.scalar_type() == c10::ScalarType::Float; }

// [B, heads, S, D] as [B, S, heads, D], the order of the operators and of memory.
Tensor by_token(const Tensor& x) { return x.transpose(1, 2); }

// A key head for each query head.
Tensor repeated(const AttentionInput& in, const Tensor& x_BSHD) {
  const std::int64_t group = in.q.size(1) / in.k.size(1);
  return group == 1 ? x_BSHD : x_BSHD.repeat_interleave(group, 2);
}

Tensor floats(const Tensor& x, at::IntArrayRef sizes) {
  return empty_tensor(sizes, c10::ScalarType::Float, x.device());
}
Tensor like(const Tensor& x) { return empty_tensor(x.sizes(), x.scalar_type(), x.device()); }

// In place of a random state: no operator reads the state without dropout.
Tensor no_state(const Tensor& x) { return empty_tensor({2}, c10::ScalarType::Long, x.device()); }

struct Grads {
  Tensor q, k, v;  // [B, S, heads, D]
};

// --- 16 bits ---

std::optional<c10::SymInt> keys_before(const AttentionInput& in) {
  if (in.window == 0) return std::nullopt;
  return c10::SymInt(in.window - 1);
}
std::optional<c10::SymInt> keys_behind(const AttentionInput& in) {
  if (in.window == 0) return std::nullopt;
  return c10::SymInt(0);
}

AttentionResult flash(const AttentionInput& in) {
  const std::int64_t B = in.q.size(0), heads = in.q.size(1), S = in.q.size(2);
  const Tensor q = by_token(in.q);
  if (in.q.is_meta()) return {by_token(like(q)), {floats(q, {B, heads, S})}};
  const auto [out, lse, state, unused, mask] = at::_flash_attention_forward_symint(
      q, by_token(in.k), by_token(in.v), std::nullopt, std::nullopt, S, S, 0.0, true, false,
      std::nullopt, keys_before(in), keys_behind(in));
  return {by_token(out), {lse}};
}

// What flash attention's backward allocates besides its results. dq is added up in fp32; the
// deterministic form has a copy of the sum for each block that works on a head, the blocks of all
// heads together being one for each multiprocessor.
void dry_flash_scratch(const AttentionInput& in) {
  constexpr std::int64_t kRows = 128;
  const std::int64_t B = in.q.size(0), heads = in.q.size(1);
  const std::int64_t rows = round_up(in.q.size(2), kRows);
  const std::int64_t columns = flash_scratch_columns(in.q.size(3));
  const std::int64_t copies =
      in.deterministic ? (in.multiprocessors + B * heads - 1) / (B * heads) : std::int64_t{1};
  const Tensor row_sums = floats(in.q, {B, heads, rows});
  const Tensor dq = floats(in.q, {copies, B, heads, rows, columns});
  if (in.k.size(1) == heads) return;
  const Tensor each_dk = like(in.q), each_dv = like(in.q);  // of each query head, then summed
}

Grads flash_backward(const AttentionInput& in, const AttentionResult& kept, const Tensor& grad) {
  const Tensor q = by_token(in.q), k = by_token(in.k), v = by_token(in.v);
  if (in.q.is_meta()) {
    const Grads grads{like(q), like(k), like(v)};
    dry_flash_scratch(in);
    return grads;
  }
  const std::int64_t S = in.q.size(2);
  const Tensor state = no_state(q);
  const auto [dq, dk, dv] = at::_flash_attention_backward_symint(
      by_token(grad), q, k, v, by_token(kept.out), kept.rest.at(0), Tensor(), Tensor(), S, S, 0.0,
      true, state, state, std::nullopt, keys_before(in), keys_behind(in));
  return {dq, dk, dv};
}

// --- 16 bits, cuDNN ---

AttentionResult cudnn(const AttentionInput& in) {
  const std::int64_t B = in.q.size(0), heads = in.q.size(1), S = in.q.size(2);
  if (in.q.is_meta()) return {by_token(like(by_token(in.q))), {floats(in.q, {B, heads, S})}};
  auto made = at::_cudnn_attention_forward_symint(in.q, in.k, in.v, std::nullopt, std::nullopt,
                                                  std::nullopt, S, S, true, 0.0, true);
  return {std::get<0>(made), {std::get<1>(made)}};
}

// cudnn-frontend's workspace: dq and row sums in fp32.
void dry_cudnn_scratch(const AttentionInput& in) {
  const Tensor workspace = floats(in.q, {in.q.numel() + in.q.numel() / in.q.size(3)});
}

Grads cudnn_backward(const AttentionInput& in, const AttentionResult& kept, const Tensor& grad) {
  if (in.q.is_meta()) {
    const Grads grads{like(by_token(in.q)), like(by_token(in.k)), like(by_token(in.v))};
    dry_cudnn_scratch(in);
    return grads;
  }
  const std::int64_t S = in.q.size(2);
  const Tensor state = no_state(in.q);
  const auto [dq, dk, dv] =
      at::_cudnn_attention_backward_symint(grad, in.q, in.k, in.v, kept.out, kept.rest.at(0), state,
                                           state, Tensor(), Tensor(), Tensor(), S, S, 0.0, true);
  return {by_token(dq), by_token(dk), by_token(dv)};
}

// --- fp32 ---

std::optional<std::int64_t> keys_seen(const AttentionInput& in) {
  if (in.window == 0) return std::nullopt;
  return in.window;
}

AttentionResult efficient(const AttentionInput& in) {
  constexpr std::int64_t kRows = 32;
  const std::int64_t B = in.q.size(0), heads = in.q.size(1), S = in.q.size(2);
  const Tensor q = by_token(in.q);
  const Tensor k = repeated(in, by_token(in.k)), v = repeated(in, by_token(in.v));
  if (in.q.is_meta()) {
    return {by_token(like(q)), {floats(q, {B, heads, round_up(S, kRows)})}};
  }
  const auto [out, lse, seed, offset, q_rows, k_rows] = at::_efficient_attention_forward_symint(
      q, k, v, std::nullopt, std::nullopt, std::nullopt, std::nullopt, std::nullopt, 0.0, kCausal,
      true, std::nullopt, std::nullopt, keys_seen(in));
  return {by_token(out), {lse}};
}

// The sum over the query heads that share a key head, where a gradient has one for each.
Tensor of_key_heads(const AttentionInput& in, const Tensor& grad_BSHD) {
  const std::int64_t kv_heads = in.k.size(1), group = grad_BSHD.size(2) / kv_heads;
  if (group == 1) return grad_BSHD;
  return grad_BSHD.view({grad_BSHD.size(0), grad_BSHD.size(1), kv_heads, group, grad_BSHD.size(3)})
      .sum({3});
}

Grads efficient_backward(const AttentionInput& in, const AttentionResult& kept,
                         const Tensor& grad) {
  const std::int64_t B = in.q.size(0), heads = in.q.size(1), S = in.q.size(2);
  const Tensor q = by_token(in.q);
  const Tensor k = repeated(in, by_token(in.k)), v = repeated(in, by_token(in.v));
  if (in.q.is_meta()) {
    const Tensor dq = like(q), dk = like(k), dv = like(v);
    {
      const Tensor products = like(q);  // grad * out, summed by row
      const Tensor row_sums = floats(q, {B, heads, S}), in_order = floats(q, {B, heads, S});
    }
    return {dq, of_key_heads(in, dk), of_key_heads(in, dv)};
  }
  const std::optional<std::int64_t> splits =
      in.deterministic ? std::optional<std::int64_t>(1) : std::nullopt;
  const Tensor state = no_state(q);
  const auto [dq, dk, dv, dbias] = at::_efficient_attention_backward_symint(
      by_token(grad), q, k, v, std::nullopt, by_token(kept.out), std::nullopt, std::nullopt, S, S,
      kept.rest.at(0), 0.0, state, state, kCausal, false, std::nullopt, splits, keys_seen(in));
  return {dq, of_key_heads(in, dk), of_key_heads(in, dv)};
}

// --- packed rows ---

// [B, heads, S, D] as the tokens of all rows.
Tensor tokens(const Tensor& x) {
  return by_token(x).reshape({x.size(0) * x.size(2), x.size(1), x.size(3)});
}

VarlenAttention varlen(const AttentionInput& in) {
  // The operator for fp32 needs a key head for each query head.
  const auto keys = [&](const Tensor& x) {
    return is_wide(in) ? tokens(by_token(repeated(in, by_token(x)))) : tokens(x);
  };
  return {.q = tokens(in.q),
          .k = keys(in.k),
          .v = keys(in.v),
          .seq = in.q.size(2),
          .window = in.window,
          .documents = in.documents,
          .deterministic = in.deterministic,
          .multiprocessors = in.multiprocessors};
}

Tensor by_row(const AttentionInput& in, const Tensor& x_NHD) {
  return x_NHD.view({in.q.size(0), in.q.size(2), x_NHD.size(1), x_NHD.size(2)});
}

AttentionResult packed_forward(const AttentionInput& in) {
  const VarlenKept kept = varlen_forward(varlen(in));
  AttentionResult result{by_token(by_row(in, kept.out))};
  if (kept.lse.defined()) result.rest = {kept.lse};
  return result;
}

Grads packed_backward(const AttentionInput& in, const AttentionResult& kept, const Tensor& grad) {
  const Tensor lse = is_wide(in) ? Tensor() : kept.rest.at(0);
  const std::vector<Tensor> made =
      varlen_backward(varlen(in), {tokens(kept.out), lse}, tokens(grad));
  return {by_row(in, made[0]), of_key_heads(in, by_row(in, made[1])),
          of_key_heads(in, by_row(in, made[2]))};
}

AttentionOperator operator_of(const AttentionInput& in) {
  return attention_operator({.wanted = in.backend,
                             .fp32 = is_wide(in),
                             .packed = in.packed && (in.documents != nullptr || in.q.is_meta()),
                             .queries = in.q.size(2)});
}

Grads gradients(const AttentionInput& in, const AttentionResult& kept, const Tensor& grad) {
  switch (operator_of(in)) {
    case AttentionOperator::kVarlen:
      return packed_backward(in, kept, grad);
    case AttentionOperator::kEfficient:
      return efficient_backward(in, kept, grad);
    case AttentionOperator::kCudnn:
      return cudnn_backward(in, kept, grad);
    case AttentionOperator::kFlash:
      break;
  }
  return flash_backward(in, kept, grad);
}

// Writes to.fused and, where wanted, the parts of its sums.
void join(const Grads& made, const AttentionHeads& to) {
  const std::array<Tensor, cuda::JoinedRows::kMatrices> each{made.q, made.k, made.v};
  Tensor fused = to.fused;
  if (!to.parts.defined()) {
    at::cat_out(fused, {each[0], each[1], each[2]}, 2);
    return;
  }
  cuda::JoinedRows rows{.to = fused.data_ptr(),
                        .dtype = dtype_of(fused),
                        .rows = fused.size(0) * fused.size(1),
                        .parts = static_cast<float*>(to.parts.data_ptr())};
  for (std::size_t k = 0; k < each.size(); ++k) {
    check(each[k].is_contiguous(), "gradients of attention lie in rows of tokens");
    rows.from[k] = each[k].data_ptr();
    rows.columns[k] = each[k].size(2) * each[k].size(3);
  }
  block_kernels().join_rows(rows, stream_of(fused));
}

}  // namespace

AttentionResult attention_forward(const AttentionInput& in) {
  if (needs_products(in)) return product_attention(in);
  switch (operator_of(in)) {
    case AttentionOperator::kVarlen:
      return packed_forward(in);
    case AttentionOperator::kEfficient:
      return efficient(in);
    case AttentionOperator::kCudnn:
      return cudnn(in);
    case AttentionOperator::kFlash:
      break;
  }
  return flash(in);
}

void attention_backward(const AttentionInput& in, const AttentionResult& kept,
                        const Tensor& grad_output, const AttentionHeads& grads) {
  if (needs_products(in)) return product_attention_backward(in, grad_output, grads);
  const DeterministicOperators deterministic(in.deterministic && !in.q.is_meta());
  const Grads made = gradients(in, kept, grad_output);
  if (!in.q.is_meta() && grads.fused.defined()) join(made, grads);
}

}  // namespace sluice::device
