// Causal attention of packed rows on a GPU: libtorch's operators over the ends of documents
// (cu_seqlens), so that queries meet no key of another document and no s x s mask exists. Flash
// attention in 16 bits (compute capability 8.0 or higher, head_dim a multiple of 8 up to 256),
// memory-efficient attention in fp32.
//
// The operators' scratch grows with the number of documents. So documents go in groups
// (documents.hpp), and a dry run counts the most that any rows need: one call over all tokens, and
// results of a group beside the whole ones. Has been compiled and has run on a GPU that computes
// nothing; has not run on a card.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/model/unit.hpp"

namespace sluice {

// Tokens of all rows: q [N, heads, D], k and v [N, kv_heads, D]; in fp32 kv_heads = heads.
struct VarlenAttention {
  at::Tensor q, k, v;
  std::int64_t window = 0;               // keys that a query sees; 0: all of its document before it
  const Documents* documents = nullptr;  // not null but on the meta device
};

// What backward needs besides: in 16 bits log-sum-exp and random state of each group. In fp32
// nothing: its log-sum-exp has a row as long as the longest document for each document, so backward
// computes it again.
struct VarlenKept {
  at::Tensor out;
  std::vector<at::Tensor> of_groups;
};

[[nodiscard]] VarlenKept varlen_forward(const VarlenAttention& in);
// Gradients by q, k and v.
[[nodiscard]] std::vector<at::Tensor> varlen_backward(const VarlenAttention& in,
                                                      const VarlenKept& kept,
                                                      const at::Tensor& grad);

// Differentiable; call.documents outlives the backward. q: [B, heads, S, D], k and v: [B, kv_heads,
// S, D] -> q's shape.
[[nodiscard]] at::Tensor varlen_attention(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const UnitCall& call,
                                          std::int64_t window);

}  // namespace sluice
