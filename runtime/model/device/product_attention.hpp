// Causal attention on a GPU by batched products, for what libtorch's fused operators do not take:
// dropout on the attention weights, and heads other than multiples of 8 up to 256. Arguments as in
// explicit_attention.hpp; the masks are the host's.
//
// A chunk is some key heads, of one sample or of several. Their q, k and v are packed side by side,
// padded to whole packs of 16 bytes, the query heads that share a key head as further rows. A block
// of queries then takes a product for the scores (fp32), a kernel for softmax and dropout, and a
// product with v (added in fp32, rounded once). Scratch is bounded by scratch_bytes; a single head
// of a very long sequence may take more.
//
// Backward makes the scores again from q and k, so nothing is kept besides. Every sum has one
// order. Meta tensors that stand for a GPU's allocate the same scratch.
#pragma once

#include "runtime/model/device/cuda_kernels.hpp"
#include "runtime/model/math/explicit_attention.hpp"

namespace sluice::device {

// True if the fused operators do not support the call.
[[nodiscard]] bool needs_products(const AttentionInput& in);

// Functions that run the kernels. Null: the CUDA module's, on the current stream. Tests pass the
// kernels' bodies on the host, with tensors on the host.
struct ProductKernels {
  decltype(cuda::launch_copy_heads)* copy_heads = nullptr;
  decltype(cuda::launch_attention_scores)* attention_scores = nullptr;
  std::int64_t scratch_bytes = std::int64_t{256} << 20;
};

[[nodiscard]] AttentionResult product_attention(const AttentionInput& in,
                                                const ProductKernels& kernels = {});
void product_attention_backward(const AttentionInput& in, const at::Tensor& grad_output,
                                const AttentionHeads& grads, const ProductKernels& kernels = {});

}  // namespace sluice::device
