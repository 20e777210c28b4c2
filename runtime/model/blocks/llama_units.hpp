// Units of the llama family (llama, mistral, qwen2): RMSNorm before each half of a block, rotary
// positions, grouped-query attention with or without a sliding window, SwiGLU; biases only as
// AttentionBias names them. Dropout, if any, sits where a gpt2 has it.
#pragma once

#include <memory>

#include "runtime/model/blocks/llama_params.hpp"
#include "runtime/model/math/attention.hpp"
#include "runtime/model/math/rope.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/tensor_group.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// Constants that all blocks share.
struct LlamaConstants {
  explicit LlamaConstants(const ModelOptions& options, bool dry = false);  // as RopeTable
  RopeTable rope;
  std::unique_ptr<const WindowMask> window;  // null: all keys before a query
};

// [B, S, H] -> [B, S, H]. `layer` keys its dropout.
[[nodiscard]] std::unique_ptr<Unit> make_llama_block(const ModelOptions& options,
                                                     std::int64_t layer,
                                                     std::shared_ptr<const LlamaConstants> shared);
// params: norm weight [H], classifier [V, H]. `group`: as make_classifier_head.
[[nodiscard]] std::unique_ptr<LossHead> make_rms_norm_head(const ModelOptions& options,
                                                           std::shared_ptr<TensorGroup> group = {});

}  // namespace sluice
