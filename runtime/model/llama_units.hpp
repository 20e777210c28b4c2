// Units of the llama family (llama, mistral, qwen2): RMSNorm before each half of a block, rotary
// positions, grouped-query attention with or without a sliding window, SwiGLU; no biases but those
// that AttentionBias names. Dropout, where asked for, sits where a gpt2 has it.
#pragma once

#include <memory>

#include "runtime/model/attention.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// Where a block's parameters stand; -1: it has none. q, k, v lie one after another, as gate and up
// do, so that one product over both is possible where sizes keep the group's alignment.
struct LlamaBlockParams {
  int input_norm = 0;
  int q = 1;
  int k = 2;
  int v = 3;
  int q_bias = -1;
  int k_bias = -1;
  int v_bias = -1;
  int o = 0;
  int o_bias = -1;
  int post_norm = 0;
  int gate = 0;
  int up = 0;
  int down = 0;
  int count = 0;
};
// REQUIRES: with_defaults() was applied.
[[nodiscard]] LlamaBlockParams llama_block_params(const ModelOptions& options);

// What all blocks share.
struct LlamaConstants {
  explicit LlamaConstants(const ModelOptions& options);
  RopeTable rope;
  std::unique_ptr<const WindowMask> window;  // null: all keys before a query
};

// [B, S, H] -> [B, S, H]. `layer` keys its dropout.
[[nodiscard]] std::unique_ptr<Unit> make_llama_block(const ModelOptions& options,
                                                     std::int64_t layer,
                                                     std::shared_ptr<const LlamaConstants> shared);
// params: norm weight [H], classifier [V, H].
[[nodiscard]] std::unique_ptr<LossHead> make_rms_norm_head(const ModelOptions& options);

}  // namespace sluice
