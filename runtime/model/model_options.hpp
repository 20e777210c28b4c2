// What model to build: the `model:` section.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

enum class ModelType { kGpt2, kLlama, kMistral, kQwen2 };
enum class RopeScaling { kNone, kLlama3 };
// Attention projections with biases; kAuto: as the model type has (qwen2: q, k and v).
enum class AttentionBias { kAuto, kNone, kQkv, kQkvo };
// Type in which 16-bit matrices are multiplied: their own dtype with fp32 sums; fp32, on CPUs; or
// 8 bits, in the linear layers of blocks (math/explicit_linear.hpp).
enum class MatmulType { kNative, kFp32, kFp8 };
// The operator of 16-bit attention on a GPU (attention_choice.hpp), and train.attention.
enum class AttentionBackend { kFlash, kCudnn };
enum class AttentionChoice { kAuto, kFlash, kCudnn };

// Figures of a GPU by which libtorch sizes its scratch; of an H100 where the GPU is not known.
struct GpuFigures {
  int compute_capability = 90;  // times ten
  int multiprocessors = 132;
};

struct ModelOptions {
  ModelType type = ModelType::kGpt2;
  std::int64_t layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t ffn = 0;       // 0: 4 x hidden (gpt2), or 8/3 x hidden up to a multiple of 64
  std::int64_t vocab = 0;     // 0: the tokenizer's size
  std::int64_t seq = 1024;    // tokens of a sample, and positions of a gpt2
  bool tie_embeddings = true;
  double dropout = 0.0;  // embedding, attention and residual
  double norm_eps = 0;   // 0: 1e-5, or 1e-6 for qwen2
  double init_std = 0.02;
  // The options below up to rope_original_seq are only for llama, mistral and qwen2.
  AttentionBias attention_bias = AttentionBias::kAuto;
  std::int64_t sliding_window = 0;  // keys that a query sees, its own included; 0: all earlier ones
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 8;  // the first of four parameters of llama3 scaling
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  std::int64_t rope_original_seq = 8192;
  bool explicit_units = true;        // blocks with a hand-written backward
  bool recompute_attention = false;  // backward recomputes attention's output (recompute.mode)
  std::string from{};                // a Hugging Face directory; empty: fresh weights
  // Not a key of `model:`: the run's choice for train.matmul. kFp32 and kFp8 are for
  // explicit units, kFp32 on a CPU only.
  MatmulType matmul = MatmulType::kNative;
  // Not a key: the model runs on a GPU. A dry run takes the same paths.
  bool on_gpu = false;
  GpuFigures gpu{};  // not a key: of that GPU
  // Not a key: rows may hold several documents (UnitCall::documents), as the data says
  // (DataOptions::packs_rows). Units then take the code of documents for every row, so that a dry
  // run, whose rows are one document, counts the most that a row can need.
  bool packed_rows = false;
  // Not keys: what train.attention means for the model (settled_attention), train.deterministic.
  AttentionBackend attention = AttentionBackend::kFlash;
  bool deterministic = false;
  // Not a key: train.freeze, the patterns of parameters that are not trained (frozen_groups.hpp).
  std::vector<std::string> freeze{};
};

// Fills in every "0: ..." above except vocab. REQUIRES: heads > 0.
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
