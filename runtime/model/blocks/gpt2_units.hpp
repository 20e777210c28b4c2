// GPT-2's units (Radford et al. 2019): learned positions, LayerNorm before each half of a block,
// tanh GELU, biases, dropout after the embedding, on the attention weights and on both residual
// branches.
#pragma once

#include <memory>

#include "runtime/model/model_spec.hpp"
#include "runtime/model/tensor_group.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// [B, S, H] -> [B, S, H]; params in the order of model_spec.cpp. `layer` keys its dropout.
[[nodiscard]] std::unique_ptr<Unit> make_gpt2_block(const ModelOptions& options,
                                                    std::int64_t layer);
// params: ln_f weight and bias [H], classifier [V, H]. `group`: as make_classifier_head.
[[nodiscard]] std::unique_ptr<LossHead> make_layer_norm_head(
    const ModelOptions& options, std::shared_ptr<TensorGroup> group = {});

}  // namespace sluice
