// Causal self-attention through libtorch's scaled_dot_product_attention.
#pragma once

#include "runtime/model/unit.hpp"

namespace sluice {

// q, k, v: [B, heads, S, head_dim] (any strides) -> the same shape. With dropout on the attention
// weights the s x s path is taken, since no fused kernel takes a mask that can be replayed.
[[nodiscard]] at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, double dropout_p,
                                          const UnitCall& call, std::uint64_t dropout_site);

}  // namespace sluice
