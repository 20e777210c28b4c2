// Causal attention with its gradient, on the host and on the meta device: batched GEMMs on blocks
// of queries that stop at the diagonal, fp32 whatever the dtype. Twice the rate of libtorch's fused
// CPU kernel at the lengths trained on CPUs, and it takes dropout whose mask can be replayed.
//
// q, k, v and their gradients are [B, heads, S, D]; q, k, v may be strided views of one fused
// projection. Outputs lie in memory as [B, S, heads, D], so that the projections around attention
// take them as rows of tokens without a copy. Scratch is that of 4 heads of one sample: fp32 scores
// of 64 queries, twice that backward, and fp32 copies of what is 16 bits.
// Nothing is kept between the two but q, k and v: backward makes the weights again.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/explicit_kernels.hpp"

namespace sluice {

struct AttentionInput {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  DropoutPlace dropout;  // on the attention weights; per_sample and first are not read
};

struct AttentionGradients {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

[[nodiscard]] at::Tensor attention_forward(const AttentionInput& in);
[[nodiscard]] AttentionGradients attention_backward(const AttentionInput& in,
                                                    const at::Tensor& grad_output);

}  // namespace sluice
