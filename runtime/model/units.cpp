#include "runtime/model/units.hpp"

#include "runtime/model/explicit_units.hpp"
#include "runtime/model/gpt2_units.hpp"
#include "runtime/model/llama_units.hpp"

namespace sluice {

Model make_model(const ModelOptions& options) {
  Model model{make_model_spec(options), {}, nullptr};
  const ModelOptions& filled = model.spec.options;
  model.units.push_back(make_token_embedding(filled));
  if (filled.type == ModelType::kGpt2) {
    for (std::int64_t layer = 0; layer < filled.layers; ++layer) {
      model.units.push_back(filled.explicit_units ? make_gpt2_explicit_block(filled, layer)
                                                  : make_gpt2_block(filled, layer));
    }
    model.head = make_layer_norm_head(filled);
    return model;
  }
  const auto shared = std::make_shared<const LlamaConstants>(filled);
  for (std::int64_t layer = 0; layer < filled.layers; ++layer) {
    model.units.push_back(filled.explicit_units ? make_llama_explicit_block(filled, layer, shared)
                                                : make_llama_block(filled, layer, shared));
  }
  model.head = make_rms_norm_head(filled);
  return model;
}

}  // namespace sluice
