// Which Hugging Face tensor holds which of our parameters, and how. Pure.
//
// One tensor holds one parameter: q, k and v, gate and up, which run as one product, are separate
// parameters here too. gpt2's Conv1D weights are stored [in, out], the transpose of ours. A tied
// head has no parameter of its own. Rows may differ: a vocabulary is padded in a file or extended
// here, and a gpt2 may be trained on fewer positions than it has.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/model/model_spec.hpp"

namespace sluice {

enum class HfRows {
  kExact,
  kVocabulary,  // rows beyond the model's are padding; rows that are missing keep their draw
  kPositions,   // the first rows are taken
};

struct HfPlacement {
  std::string param;                // ours: "h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;  // ours
  std::string tensor;               // as transformers writes it: "transformer.h.0..."
  bool transposed = false;          // stored as [in, out]
  HfRows rows = HfRows::kExact;

  // The shape of the whole parameter as it is stored.
  [[nodiscard]] std::vector<std::int64_t> stored_shape() const;
};

// In the order of the model's parameters.
[[nodiscard]] std::vector<HfPlacement> hf_placements(const ModelSpec& spec);

// The name that transformers writes for a tensor of a file, where the family's prefix
// ("transformer.", "model.") may be missing.
[[nodiscard]] std::string hf_canonical_name(ModelType type, const std::string& in_file);
// Buffers that are no weights: causal masks, rotary frequencies. `canonical` as above.
[[nodiscard]] bool hf_is_buffer(ModelType type, const std::string& canonical);

// The head that a tied model's file may hold a second time, and the table it must equal.
inline constexpr char kHfHead[] = "lm_head.weight";
[[nodiscard]] std::string hf_table_name(ModelType type);
inline constexpr char kHfPositions[] = "transformer.wpe.weight";  // of a gpt2

}  // namespace sluice
