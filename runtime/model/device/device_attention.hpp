// Causal attention on a GPU for explicit blocks, by operators of libtorch that are called by name,
// so that no version of libtorch chooses another. Arguments as in explicit_attention.hpp.
//
// - 16 bits: _flash_attention, with or without a window; shared key heads are read in place. Needs
//   capability 8.0 or higher and a head_dim that is a multiple of 8 up to 256.
// - 16 bits with AttentionBackend::kCudnn (train.attention: cudnn, or auto on Hopper):
//   _cudnn_attention; shared key heads are read in place. Needs capability 8.0 or higher;
//   why_no_cudnn() names the models that it does not take.
// - fp32: _efficient_attention, with or without a window; shared key heads are repeated for the
//   call.
// - Dropout on the weights, and other heads: product_attention.hpp.
//
// Packed rows go through varlen_attention.hpp. Meta tensors that stand for a GPU's allocate what
// the operators allocate.
#pragma once

#include "runtime/model/math/explicit_attention.hpp"

namespace sluice::device {

[[nodiscard]] AttentionResult attention_forward(const AttentionInput& in);
// Writes grads.fused, and grads.parts where defined: not where needs_products().
void attention_backward(const AttentionInput& in, const AttentionResult& kept,
                        const at::Tensor& grad_output, const AttentionHeads& grads);

}  // namespace sluice::device
