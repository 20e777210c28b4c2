// The mapping between Hugging Face tensors and Sluice parameters. Pure.
//
// One tensor holds one parameter. q, k, v, gate and up are separate parameters in Sluice too,
// although they run as one product. gpt2's Conv1D weights are stored [in, out], the transpose of
// Sluice's. A tied head has no parameter. The number of rows may differ: a file may pad the
// vocabulary, a run may extend the vocabulary, and a gpt2 may be trained on fewer positions than
// its file has.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/model/model_spec.hpp"

namespace sluice {

enum class HfRows {
  kExact,
  kVocabulary,  // extra rows of the file are padding; missing rows keep their initial weights
  kPositions,   // uses the first rows of the file
};

struct HfPlacement {
  std::string param;                // Sluice's name: "h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;  // in Sluice
  std::string tensor;               // name that transformers writes: "transformer.h.0..."
  bool transposed = false;          // stored as [in, out]
  HfRows rows = HfRows::kExact;

  // The shape of the stored tensor.
  [[nodiscard]] std::vector<std::int64_t> stored_shape() const;
};

// In the order of the model's parameters.
[[nodiscard]] std::vector<HfPlacement> hf_placements(const ModelSpec& spec);

// The name that transformers writes for a tensor. In a file the family's prefix ("transformer.",
// "model.") may be missing.
[[nodiscard]] std::string hf_canonical_name(ModelType type, const std::string& in_file);
// True for buffers that are no weights: causal masks, rotary frequencies. `canonical`: the result
// of hf_canonical_name().
[[nodiscard]] bool hf_is_buffer(ModelType type, const std::string& canonical);

// The head, which the file of a tied model may contain as a copy, and the table that it must equal.
inline constexpr char kHfHead[] = "lm_head.weight";
[[nodiscard]] std::string hf_table_name(ModelType type);
inline constexpr char kHfPositions[] = "transformer.wpe.weight";  // of a gpt2

}  // namespace sluice
