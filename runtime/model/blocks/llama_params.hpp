// Positions of a llama block's parameters. Pure: model_spec.cpp lays them out, llama_block.cpp
// reads them.
#pragma once

#include "runtime/model/model_options.hpp"

namespace sluice {

// Positions in a block's list; -1: absent. q, k, v are neighbours, and so are gate and up, so that
// one product covers them if sizes keep the group's alignment.
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

// Device bytes of the mask that blocks with a sliding window share (attention.hpp).
[[nodiscard]] std::int64_t window_mask_bytes(std::int64_t window);

}  // namespace sluice
