// Causal attention of packed rows on a GPU: libtorch's operators over the ends of documents
// (cu_seqlens), so that queries meet no key of another document and no s x s mask exists. Flash
// attention in 16 bits (compute capability 8.0 or higher, head_dim a multiple of 8 up to 256),
// memory-efficient attention in fp32.
//
// A call takes all tokens and the ends of Documents::room() documents, empty ones behind the last,
// so its shapes do not depend on the documents. The scratch of a backward grows with the documents
// of a call: by 128 tokens each in 16 bits, by a dq of whole rows in fp32. So backward is several
// calls where there are more than most_in_backward(). Each call writes the gradients of its own
// documents (over_calls). A dry run counts several.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "runtime/model/unit.hpp"

namespace sluice {

// Tokens of all rows: q [N, heads, D], k and v [N, kv_heads, D]; in fp32 kv_heads = heads.
struct VarlenAttention {
  at::Tensor q, k, v;
  std::int64_t seq = 0;                  // tokens of a row
  std::int64_t window = 0;               // keys that a query sees; 0: all of its document before it
  const Documents* documents = nullptr;  // not null but on the meta device
  bool deterministic = false;            // as ModelOptions::deterministic
  int multiprocessors = 1;               // of the GPU
};

struct VarlenKept {
  at::Tensor out;
  // 16 bits: [heads, N]. In fp32 undefined: it has a row of seq tokens for each document, so
  // backward computes it again.
  at::Tensor lse{};
};

[[nodiscard]] VarlenKept varlen_forward(const VarlenAttention& in);
// Gradients by q, k and v.
[[nodiscard]] std::vector<at::Tensor> varlen_backward(const VarlenAttention& in,
                                                      const VarlenKept& kept,
                                                      const at::Tensor& grad);

// Documents that a call of the backward takes, at most: a power of two. 16 bits: scratch stays
// below 1.5 times that of whole rows, or that of 2048 tokens more. fp32: up to 4 dq.
[[nodiscard]] std::int64_t most_in_backward(std::int64_t tokens, std::int64_t seq, bool fp32);

// The results of call(ends) for every `of_call` documents of room(), put together: each token of
// the call that has its document. What a call leaves at tokens of other documents is not read.
// dims: of each result the dimension of tokens.
[[nodiscard]] std::vector<at::Tensor> over_calls(
    const Documents& documents, const at::Device& device, std::int64_t of_call,
    std::span<const std::int64_t> dims,
    const std::function<std::vector<at::Tensor>(const at::Tensor& ends)>& call);

// Differentiable; call.documents outlives the backward. q: [B, heads, S, D], k and v: [B, kv_heads,
// S, D] -> q's shape.
[[nodiscard]] at::Tensor varlen_attention(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const UnitCall& call,
                                          std::int64_t window);

}  // namespace sluice
