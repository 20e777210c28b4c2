// What model to build: the `model:` section.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

enum class ModelType { kGpt2, kLlama, kMistral, kQwen2 };

struct ModelOptions {
  ModelType type = ModelType::kGpt2;
  std::int64_t layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t ffn = 0;       // 0: 4 x hidden (gpt2)
  std::int64_t vocab = 0;     // 0: what the tokenizer has
  std::int64_t seq = 1024;    // tokens of a sample, and positions of a gpt2
  bool tie_embeddings = true;
  double dropout = 0.0;  // embedding, attention and residual
  double norm_eps = 1e-5;
  double init_std = 0.02;
  std::string from{};  // a Hugging Face directory; empty: fresh weights
};

}  // namespace sluice
