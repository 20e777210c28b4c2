// A small model's options for plans, and a machine for it.
#pragma once

#include "runtime/plan/planner.hpp"

namespace sluice::testing {

inline EngineOptions small_options(int dp = 4) {
  EngineOptions options;
  options.model.type = ModelType::kLlama;
  options.model.layers = 4;
  options.model.hidden = 64;
  options.model.heads = 4;
  options.model.kv_heads = 2;
  options.model.ffn = 192;
  options.model.vocab = 257;
  options.model.seq = 32;
  options.model.tie_embeddings = false;
  options.train.dtype = DType::kBFloat16;
  options.train.micro_batch = 2;
  options.train.global_batch = 2 * dp * 5;
  options.zero.stage = 2;
  options.zero.bucket_bytes = 64 * 1024;
  options.offload.chunk_bytes = 32 * 1024;
  options.tiers.nvme.paths = {"drive"};
  options.dp = dp;
  return options;
}

inline TierBudgets no_limits() { return {}; }

}  // namespace sluice::testing
