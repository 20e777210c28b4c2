// Units whose forward, input gradient and weight gradient are written out, beside the autograd ones
// they are tested against. They keep less for backward, add weight gradients up inside the GEMM
// that makes them, and run on own kernels.
//
// Explicit blocks refuse CUDA tensors: their kernels are the host's (has_explicit_blocks).
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/model/blocks/llama_units.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/tensor_group.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// `options` with its defaults filled in (make_model_spec). With options.recompute_attention the
// output of attention is not among what a block keeps: backward makes it again from q, k and v, bit
// by bit (selective recomputation, Korthikanti et al. 2022). `group`: the tensor-parallel ranks of
// which each has a part of the block (explicit_block.hpp); null: one rank has it. Both split their
// backward (GradSink::deferred).

// What make_gpt2_block (gpt2_units.hpp) makes, with the same parameters, the same dropout masks and
// results equal up to rounding. Keeps, per token, 9 hidden-sized elements of the model's dtype
// (q, k, v, attention's output, the residual stream after it, the MLP's 4 before GELU); norms,
// GELU, attention weights and masks are made again in backward.
[[nodiscard]] std::unique_ptr<Unit> make_gpt2_explicit_block(
    const ModelOptions& options, std::int64_t layer, std::shared_ptr<TensorGroup> group = {});

// What make_llama_block (llama_units.hpp) makes, likewise. Keeps, per token, (2 heads + 2 kv_heads)
// x head_dim elements (q and k turned, v, attention's output), hidden (the residual stream after
// it) and 2 ffn (gate and up before SwiGLU).
[[nodiscard]] std::unique_ptr<Unit> make_llama_explicit_block(
    const ModelOptions& options, std::int64_t layer, std::shared_ptr<const LlamaConstants> shared,
    std::shared_ptr<TensorGroup> group = {});

// What make_token_embedding (units.hpp) makes of tensor-parallel ranks: each has some of the
// table's rows, the sum over ranks is the embedding. Learned positions and dropout come after.
[[nodiscard]] std::unique_ptr<Unit> make_sliced_embedding(const ModelOptions& options,
                                                          std::shared_ptr<TensorGroup> group);

}  // namespace sluice
