#include "runtime/checkpoint/hf/hf_names.hpp"

#include <algorithm>

namespace sluice {
namespace {

std::string prefix_of(ModelType type) {
  return type == ModelType::kGpt2 ? "transformer." : "model.";
}

HfPlacement place(const ModelSpec& spec, const ParamSpec& param) {
  const bool gpt2 = spec.options.type == ModelType::kGpt2;
  const std::string& name = param.tensor.name;
  const bool block_matrix = name.starts_with("h.") && param.tensor.shape.size() == 2;
  HfPlacement placement{name, param.tensor.shape, hf_canonical_name(spec.options.type, name)};
  placement.transposed = gpt2 && block_matrix;
  if (placement.tensor == kHfHead || placement.tensor == hf_table_name(spec.options.type)) {
    placement.rows = HfRows::kVocabulary;
  } else if (gpt2 && name == "wpe.weight") {
    placement.rows = HfRows::kPositions;
  }
  return placement;
}

bool is_digits(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<std::int64_t> HfPlacement::stored_shape() const {
  std::vector<std::int64_t> stored = shape;
  if (transposed) std::reverse(stored.begin(), stored.end());
  return stored;
}

std::vector<HfPlacement> hf_placements(const ModelSpec& spec) {
  std::vector<HfPlacement> placements;
  for (const ParamGroup& group : spec.groups) {
    for (const ParamSpec& param : group.params) placements.push_back(place(spec, param));
  }
  return placements;
}

std::string hf_canonical_name(ModelType type, const std::string& in_file) {
  const std::string prefix = prefix_of(type);
  return in_file == kHfHead || in_file.starts_with(prefix) ? in_file : prefix + in_file;
}

bool hf_is_buffer(ModelType type, const std::string& canonical) {
  if (type != ModelType::kGpt2) {
    return canonical == "model.rotary_emb.inv_freq" ||
           (canonical.starts_with("model.layers.") &&
            canonical.ends_with(".self_attn.rotary_emb.inv_freq"));
  }
  const std::string start = prefix_of(type) + "h.";
  if (!canonical.starts_with(start)) return false;
  const std::size_t dot = canonical.find('.', start.size());
  if (dot == std::string::npos || !is_digits(canonical.substr(start.size(), dot - start.size()))) {
    return false;
  }
  const std::string rest = canonical.substr(dot + 1);
  return rest == "attn.bias" || rest == "attn.masked_bias";
}

std::string hf_table_name(ModelType type) {
  return type == ModelType::kGpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

}  // namespace sluice
