// What model to build: the `model:` section.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

enum class ModelType { kGpt2, kLlama, kMistral, kQwen2 };
enum class RopeScaling { kNone, kLlama3 };
// Which projections of attention have biases; kAuto: those of the type (a qwen2's q, k and v).
enum class AttentionBias { kAuto, kNone, kQkv, kQkvo };
// What a CPU multiplies 16-bit matrices in: their own dtype, with fp32 sums, or fp32.
enum class MatmulType { kNative, kFp32 };

struct ModelOptions {
  ModelType type = ModelType::kGpt2;
  std::int64_t layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t ffn = 0;       // 0: 4 x hidden (gpt2), or 8/3 x hidden up to a multiple of 64
  std::int64_t vocab = 0;     // 0: what the tokenizer has
  std::int64_t seq = 1024;    // tokens of a sample, and positions of a gpt2
  bool tie_embeddings = true;
  double dropout = 0.0;  // embedding, attention and residual
  double norm_eps = 0;   // 0: 1e-5, or 1e-6 of a qwen2
  double init_std = 0.02;
  // The rest is for the llama family (llama, mistral, qwen2) alone.
  AttentionBias attention_bias = AttentionBias::kAuto;
  std::int64_t sliding_window = 0;  // keys that a query sees, itself included; 0: all before it
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 8;  // this and the next three: llama3 scaling
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  std::int64_t rope_original_seq = 8192;
  bool explicit_units = true;        // blocks that write out their backward
  bool recompute_attention = false;  // backward makes attention's output again: recompute.mode
  std::string from{};                // a Hugging Face directory; empty: fresh weights
  // No key of `model:`: the run's answer to train.matmul. kFp32 is for explicit units on a CPU.
  MatmulType matmul = MatmulType::kNative;
  // No key either: the model runs on a GPU. Its blocks are then libtorch's autograd, whatever
  // explicit_units says: explicit blocks have no CUDA kernels. A dry run takes the same paths.
  bool on_gpu = false;
  // No key either: train.freeze. Patterns of parameters that are not trained (param_pattern.hpp).
  std::vector<std::string> freeze{};
};

// The one place that says which kind of block runs: for plans, budget checks, searches and runs.
[[nodiscard]] inline bool has_explicit_blocks(const ModelOptions& o) {
  return o.explicit_units && !o.on_gpu;
}

// With every "0: ..." above filled in, vocab apart. REQUIRES: heads > 0.
[[nodiscard]] inline ModelOptions with_defaults(ModelOptions o) {
  constexpr std::int64_t kFfnMultiple = 64;
  const bool gpt2 = o.type == ModelType::kGpt2;
  const bool qwen2 = o.type == ModelType::kQwen2;
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.head_dim == 0) o.head_dim = o.hidden / o.heads;
  if (o.ffn == 0 && gpt2) o.ffn = 4 * o.hidden;
  if (o.ffn == 0) o.ffn = (8 * o.hidden / 3 + kFfnMultiple - 1) / kFfnMultiple * kFfnMultiple;
  if (o.norm_eps == 0) o.norm_eps = qwen2 ? 1e-6 : 1e-5;
  if (o.attention_bias == AttentionBias::kAuto) {
    o.attention_bias = gpt2    ? AttentionBias::kQkvo
                       : qwen2 ? AttentionBias::kQkv
                               : AttentionBias::kNone;
  }
  return o;
}

}  // namespace sluice
