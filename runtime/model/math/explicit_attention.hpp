// Causal attention with its gradient, on the host and on the meta device: batched GEMMs on blocks
// of queries that stop at the diagonal, fp32 whatever the dtype. Twice the rate of libtorch's fused
// CPU kernel at the lengths trained on CPUs, and it takes dropout whose mask can be replayed.
//
// q and its gradient are [B, heads, S, D], k, v and theirs [B, kv_heads, S, D], heads a multiple of
// kv_heads: query heads that share a key head follow one another. All may be strided views, e.g. of
// one fused projection. The output lies in memory as [B, S, heads, D], so that the projection after
// attention takes it as rows of tokens without a copy. Scratch is that of 4 key heads of one
// sample: fp32 scores of 64 queries, twice that backward, and fp32 copies of what is 16 bits.
//
// With a window a block of queries meets the keys that it can see and no others; there is no mask.
// Nothing is kept between the two but q, k and v: backward makes the weights again.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/math/explicit_kernels.hpp"

namespace sluice {

struct AttentionInput {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  DropoutPlace dropout;         // on the attention weights; per_sample and first are not read
  std::int64_t window = 0;      // keys that a query sees, itself included; 0: all before it
  std::int64_t first_head = 0;  // of q among all the model's, by which dropout knows them
};

// q, k and v, or their gradients.
struct AttentionHeads {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

[[nodiscard]] at::Tensor attention_forward(const AttentionInput& in);
// Writes `grads`, apart from all inputs.
void attention_backward(const AttentionInput& in, const at::Tensor& grad_output,
                        const AttentionHeads& grads);

}  // namespace sluice
