#include "runtime/model/math/varlen_attention.hpp"

#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <optional>

#include "runtime/model/documents.hpp"
#include "runtime/model/empty_tensor.hpp"

namespace sluice {
namespace {

using at::Tensor;

constexpr std::int64_t kCausal =
    1;  // custom_mask_type: a query's key of its own number is the last

bool is_wide(const VarlenAttention& in) { return in.q.scalar_type() == c10::ScalarType::Float; }

Tensor like(const Tensor& x) { return empty_tensor(x.sizes(), x.scalar_type(), x.device()); }

Tensor part(const Tensor& x, const DocumentGroup& group) {
  return x.narrow(0, group.first, group.tokens);
}

std::optional<c10::SymInt> reach(const VarlenAttention& in) {
  if (in.window == 0) return std::nullopt;
  return c10::SymInt(in.window - 1);
}
std::optional<std::int64_t> keys_seen(const VarlenAttention& in) {
  if (in.window == 0) return std::nullopt;
  return in.window;
}

struct Result {
  Tensor out, lse, seed, offset;
};

Result flash(const VarlenAttention& in, const DocumentGroup& g) {
  const auto [out, lse, seed, offset, mask] = at::_flash_attention_forward_symint(
      part(in.q, g), part(in.k, g), part(in.v, g), g.bounds, g.bounds, g.longest, g.longest, 0.0,
      true, false, std::nullopt, reach(in),
      in.window > 0 ? std::optional<c10::SymInt>(0) : std::nullopt);
  return {out, lse, seed, offset};
}

Result efficient(const VarlenAttention& in, const DocumentGroup& g, bool backward_follows) {
  const auto one = [&](const Tensor& x) { return part(x, g).unsqueeze(0); };
  const auto [out, lse, seed, offset, q_rows, k_rows] = at::_efficient_attention_forward_symint(
      one(in.q), one(in.k), one(in.v), std::nullopt, g.bounds, g.bounds, c10::SymInt(g.longest),
      c10::SymInt(g.longest), 0.0, kCausal, backward_follows, std::nullopt, std::nullopt,
      keys_seen(in));
  return {out, lse, seed, offset};
}

// --- a dry run: what the calls above and below allocate, in the order of a call over all tokens
// ---

Tensor floats(const Tensor& like, std::int64_t elems) {
  return empty_tensor({elems}, c10::ScalarType::Float, like.device());
}
Tensor random_state(const Tensor& like) {
  return empty_tensor({2}, c10::ScalarType::Long, like.device());
}

VarlenKept dry_forward(const VarlenAttention& in) {
  VarlenKept kept{.out = like(in.q), .of_groups = {}};
  const Tensor of_group = like(in.q);
  if (is_wide(in)) return kept;
  kept.of_groups = {floats(in.q, in.q.size(0) * in.q.size(1)), random_state(in.q),
                    random_state(in.q)};
  return kept;
}

std::vector<Tensor> dry_backward(const VarlenAttention& in) {
  constexpr std::int64_t kRows = 128, kColumns = 32;
  const std::int64_t N = in.q.size(0), heads = in.q.size(1), D = in.q.size(2);
  const std::vector<Tensor> grads{like(in.q), like(in.k), like(in.v)};
  const std::vector<Tensor> of_group{like(in.q), like(in.k), like(in.v)};
  if (is_wide(in)) {
    const Tensor out = like(in.q), products = floats(in.q, N * heads * D);
    const Tensor lse = floats(in.q, 2 * N * heads), row_sums = floats(in.q, 2 * N * heads);
    return grads;
  }
  const std::int64_t rows = N + kRows * Documents::most_documents(N);
  const Tensor row_sums = floats(in.q, rows * heads);
  const Tensor wide_dq = floats(in.q, rows * heads * ((D + kColumns - 1) / kColumns * kColumns));
  if (in.k.size(1) == heads) return grads;
  const Tensor each_dk = like(in.q), each_dv = like(in.q);  // of each query head, then summed
  return grads;
}

}  // namespace

VarlenKept varlen_forward(const VarlenAttention& in) {
  if (in.q.is_meta()) return dry_forward(in);
  const bool wide = is_wide(in);
  VarlenKept kept{.out = like(in.q), .of_groups = {}};
  for (const DocumentGroup& g : in.documents->groups(in.q.device(), wide)) {
    const Result made = wide ? efficient(in, g, false) : flash(in, g);
    part(kept.out, g).copy_(wide ? made.out.squeeze(0) : made.out);
    if (!wide) kept.of_groups.insert(kept.of_groups.end(), {made.lse, made.seed, made.offset});
  }
  return kept;
}

std::vector<Tensor> varlen_backward(const VarlenAttention& in, const VarlenKept& kept,
                                    const Tensor& grad) {
  if (in.q.is_meta()) return dry_backward(in);
  const bool wide = is_wide(in);
  const std::vector<Tensor> grads{like(in.q), like(in.k), like(in.v)};
  auto of_group = kept.of_groups.begin();
  for (const DocumentGroup& g : in.documents->groups(in.q.device(), wide)) {
    const auto one = [&](const Tensor& x) { return part(x, g).unsqueeze(0); };
    std::vector<Tensor> made;
    if (wide) {
      const Result again = efficient(in, g, true);
      const auto [dq, dk, dv, dbias] = at::_efficient_attention_backward_symint(
          one(grad), one(in.q), one(in.k), one(in.v), std::nullopt, again.out, g.bounds, g.bounds,
          g.longest, g.longest, again.lse, 0.0, again.seed, again.offset, kCausal, false,
          std::nullopt, std::nullopt, keys_seen(in));
      made = {dq.squeeze(0), dk.squeeze(0), dv.squeeze(0)};
    } else {
      const auto [dq, dk, dv] = at::_flash_attention_backward_symint(
          part(grad, g), part(in.q, g), part(in.k, g), part(in.v, g), part(kept.out, g),
          of_group[0], g.bounds, g.bounds, g.longest, g.longest, 0.0, true, of_group[1],
          of_group[2], std::nullopt, reach(in),
          in.window > 0 ? std::optional<c10::SymInt>(0) : std::nullopt);
      made = {dq, dk, dv};
      of_group += 3;
    }
    for (std::size_t i = 0; i < grads.size(); ++i) part(grads[i], g).copy_(made[i]);
  }
  return grads;
}

}  // namespace sluice
