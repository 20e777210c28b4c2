// Explicit units: forward, input gradient and weight gradient are written out. Tests compare them
// with autograd units. Explicit units keep less for backward, accumulate weight gradients inside
// the GEMM, and use own kernels.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/model/blocks/llama_units.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/tensor_group.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// `options` with defaults filled in (make_model_spec). With options.recompute_attention a block
// does not keep attention's output: backward computes it again from q, k and v, bit by bit
// (selective recomputation, Korthikanti et al. 2022). `group`: the tensor-parallel ranks of which
// each has a part of the block (explicit_block.hpp); null: one rank. Both kinds split their
// backward (GradSink::deferred).

// The twin of make_gpt2_block (gpt2_units.hpp): same parameters, same dropout masks, results equal
// up to rounding. Keeps, per token, 9 hidden-sized elements of the model's dtype (q, k, v,
// attention's output, the residual stream after it, the MLP's 4 before GELU). Backward computes
// norms, GELU, attention weights and masks again.
[[nodiscard]] std::unique_ptr<Unit> make_gpt2_explicit_block(
    const ModelOptions& options, std::int64_t layer, std::shared_ptr<TensorGroup> group = {});

// The twin of make_llama_block (llama_units.hpp). Keeps, per token, (2 heads + 2 kv_heads) x
// head_dim elements (q and k turned, v, attention's output), hidden (the residual stream after it)
// and 2 ffn (gate and up before SwiGLU).
[[nodiscard]] std::unique_ptr<Unit> make_llama_explicit_block(
    const ModelOptions& options, std::int64_t layer, std::shared_ptr<const LlamaConstants> shared,
    std::shared_ptr<TensorGroup> group = {});

// make_token_embedding (units.hpp) for tensor-parallel ranks: each rank has some of the table's
// rows, and the sum over ranks is the embedding. Learned positions and dropout follow.
[[nodiscard]] std::unique_ptr<Unit> make_sliced_embedding(const ModelOptions& options,
                                                          std::shared_ptr<TensorGroup> group);

}  // namespace sluice
