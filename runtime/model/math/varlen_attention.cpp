#include "runtime/model/math/varlen_attention.hpp"

#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "base/bytes.hpp"
#include "runtime/model/attention_choice.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/empty_tensor.hpp"

namespace sluice {
namespace {

using at::Tensor;

// custom_mask_type: a query's key of its own number is the last.
constexpr std::int64_t kCausal = 1;
// Documents of a forward call: a grid of blocks is at most 65535 long in their dimension.
constexpr std::int64_t kMostInForward = 32768;

bool is_wide(const VarlenAttention& in) { return in.q.scalar_type() == c10::ScalarType::Float; }

Tensor like(const Tensor& x) { return empty_tensor(x.sizes(), x.scalar_type(), x.device()); }

std::int64_t most_in_backward(const VarlenAttention& in) {
  return sluice::most_in_backward(in.q.size(0), in.seq, is_wide(in));
}

std::optional<c10::SymInt> keys_before(const VarlenAttention& in) {
  if (in.window == 0) return std::nullopt;
  return c10::SymInt(in.window - 1);
}
std::optional<c10::SymInt> keys_behind(const VarlenAttention& in) {
  if (in.window == 0) return std::nullopt;
  return c10::SymInt(0);
}
std::optional<std::int64_t> keys_seen(const VarlenAttention& in) {
  if (in.window == 0) return std::nullopt;
  return in.window;
}

// --- one call; `ends`: of its documents ---

VarlenKept flash(const VarlenAttention& in, const Tensor& ends) {
  const auto [out, lse, state, unused, mask] =
      at::_flash_attention_forward_symint(in.q, in.k, in.v, ends, ends, in.seq, in.seq, 0.0, true,
                                          false, std::nullopt, keys_before(in), keys_behind(in));
  return {out, lse};
}

std::vector<Tensor> flash_backward(const VarlenAttention& in, const VarlenKept& kept,
                                   const Tensor& grad, const Tensor& ends) {
  // No operator reads the random state without dropout.
  const Tensor state = empty_tensor({2}, c10::ScalarType::Long, in.q.device());
  const auto [dq, dk, dv] = at::_flash_attention_backward_symint(
      grad, in.q, in.k, in.v, kept.out, kept.lse, ends, ends, in.seq, in.seq, 0.0, true, state,
      state, std::nullopt, keys_before(in), keys_behind(in));
  return {dq, dk, dv};
}

struct WideResult {
  Tensor out, lse;
};

Tensor one(const Tensor& x) { return x.unsqueeze(0); }

WideResult efficient(const VarlenAttention& in, const Tensor& ends, bool backward_follows) {
  const auto [out, lse, state, unused, q_rows, k_rows] = at::_efficient_attention_forward_symint(
      one(in.q), one(in.k), one(in.v), std::nullopt, ends, ends, in.seq, in.seq, 0.0, kCausal,
      backward_follows, std::nullopt, std::nullopt, keys_seen(in));
  return {out, lse};
}

std::vector<Tensor> efficient_backward(const VarlenAttention& in, const Tensor& grad,
                                       const Tensor& ends) {
  const Tensor state = empty_tensor({2}, c10::ScalarType::Long, in.q.device());
  const WideResult again = efficient(in, ends, true);
  const auto [dq, dk, dv, dbias] = at::_efficient_attention_backward_symint(
      one(grad), one(in.q), one(in.k), one(in.v), std::nullopt, again.out, ends, ends, in.seq,
      in.seq, again.lse, 0.0, state, state, kCausal, false, std::nullopt, std::nullopt,
      keys_seen(in));
  return {dq.squeeze(0), dk.squeeze(0), dv.squeeze(0)};
}

// --- a dry run: what the calls above allocate, in their order ---

Tensor floats(const Tensor& like, std::int64_t elems) {
  return empty_tensor({elems}, c10::ScalarType::Float, like.device());
}

VarlenKept dry_forward(const VarlenAttention& in) {
  VarlenKept kept{.out = like(in.q)};
  if (!is_wide(in)) kept.lse = floats(in.q, in.q.size(0) * in.q.size(1));
  return kept;
}

// dq is added up in fp32; the deterministic form has a copy of the sum for each block that works on
// a head of a document, the blocks of all together being one for each multiprocessor.
void dry_flash_backward(const VarlenAttention& in) {
  constexpr std::int64_t kRows = 128;
  const std::int64_t heads = in.q.size(1), documents = most_in_backward(in);
  const std::int64_t rows = in.q.size(0) + kRows * documents;
  const std::int64_t blocks = heads * documents;
  const std::int64_t copies =
      in.deterministic ? (in.multiprocessors + blocks - 1) / blocks : std::int64_t{1};
  const Tensor row_sums = floats(in.q, rows * heads);
  const Tensor dq = floats(in.q, copies * rows * heads * flash_scratch_columns(in.q.size(2)));
  if (in.k.size(1) == heads) return;
  const Tensor each_dk = like(in.q), each_dv = like(in.q);  // of each query head, then summed
}

// The blocks of a head add to dq in a workspace of tiles, with a lock each.
void dry_efficient_backward(const VarlenAttention& in) {
  constexpr std::int64_t kTile = 64, kLock = 1;
  const std::int64_t heads = in.q.size(1), documents = most_in_backward(in);
  { const Tensor products = floats(in.q, in.q.numel()); }  // grad * out, summed by row
  const Tensor row_sums = floats(in.q, 2 * in.q.size(0) * heads);
  const Tensor dq = floats(
      in.q, documents * heads * round_up(in.seq, kTile) * (round_up(in.q.size(2), kTile) + kLock));
}

std::vector<Tensor> dry_backward(const VarlenAttention& in) {
  constexpr std::int64_t kRows = 32;
  const std::vector<Tensor> grads{like(in.q), like(in.k), like(in.v)};
  const Tensor index = floats(in.q, in.q.size(0)), mask = floats(in.q, in.q.size(0));
  if (is_wide(in)) {
    const Tensor out = like(in.q);
    const Tensor lse = floats(in.q, most_in_backward(in) * in.q.size(1) * round_up(in.seq, kRows));
    const std::vector<Tensor> of_call{like(in.q), like(in.k), like(in.v)};
    dry_efficient_backward(in);
  } else {
    const std::vector<Tensor> of_call{like(in.q), like(in.k), like(in.v)};
    dry_flash_backward(in);
  }
  return grads;
}

}  // namespace

std::int64_t most_in_backward(std::int64_t tokens, std::int64_t seq, bool fp32) {
  const std::int64_t most = std::max(1 + tokens / 256, Documents::kFewest), rows = tokens / seq;
  return static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(fp32 ? std::min(most, 4 * rows) : most)));
}

// The documents of a call are behind those of the calls before, and empty ones begin at the end. So
// a call's tokens from its first on replace those of the calls before.
std::vector<Tensor> over_calls(const Documents& documents, const at::Device& device,
                               std::int64_t of_call, std::span<const std::int64_t> dims,
                               const std::function<std::vector<Tensor>(const Tensor&)>& call) {
  std::vector<Tensor> results = call(documents.ends(device, 0, of_call));
  if (of_call >= documents.room()) return results;
  const std::int64_t tokens = documents.rows() * documents.seq();
  const Tensor index = at::arange(tokens, at::TensorOptions(device).dtype(c10::ScalarType::Int));
  for (std::int64_t first = of_call; first < documents.room(); first += of_call) {
    const Tensor ends = documents.ends(device, first, of_call);
    const std::vector<Tensor> made = call(ends);
    const Tensor own = index.ge(ends.narrow(0, 0, 1));
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::vector<std::int64_t> sizes(static_cast<std::size_t>(made[i].dim()), 1);
      sizes[static_cast<std::size_t>(dims[i])] = tokens;
      at::where_out(results[i], own.view(sizes), made[i], results[i]);
    }
  }
  return results;
}

VarlenKept varlen_forward(const VarlenAttention& in) {
  if (in.q.is_meta()) return dry_forward(in);
  const std::int64_t of_call = std::min(in.documents->room(), kMostInForward);
  constexpr std::array<std::int64_t, 2> kTokens{0, 1};
  const std::vector<Tensor> made =
      over_calls(*in.documents, in.q.device(), of_call, kTokens, [&](const Tensor& ends) {
        if (is_wide(in)) return std::vector{efficient(in, ends, false).out.squeeze(0)};
        const VarlenKept kept = flash(in, ends);
        return std::vector{kept.out, kept.lse};
      });
  return {made[0], is_wide(in) ? Tensor() : made[1]};
}

// In order, the number of dq's copies must not depend on the documents, nor on those of batches
// before (room()).
std::vector<Tensor> varlen_backward(const VarlenAttention& in, const VarlenKept& kept,
                                    const Tensor& grad) {
  if (in.q.is_meta()) return dry_backward(in);
  const std::int64_t most = most_in_backward(in);
  const std::int64_t of_call = in.deterministic ? most : std::min(most, in.documents->room());
  constexpr std::array<std::int64_t, 3> kTokens{0, 0, 0};
  return over_calls(*in.documents, in.q.device(), of_call, kTokens, [&](const Tensor& ends) {
    return is_wide(in) ? efficient_backward(in, grad, ends) : flash_backward(in, kept, grad, ends);
  });
}

}  // namespace sluice
