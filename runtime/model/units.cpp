#include "runtime/model/units.hpp"

#include "base/error.hpp"
#include "runtime/model/blocks/explicit_units.hpp"
#include "runtime/model/blocks/gpt2_units.hpp"
#include "runtime/model/blocks/llama_units.hpp"
#include "runtime/model/model_slices.hpp"

namespace sluice {
namespace {

// Adds blocks to a model; they share constants.
class BlockMaker {
 public:
  BlockMaker(Model& model, bool dry) : model_(model), o_(model.spec.options), dry_(dry) {
    if (!model.tensor || o_.explicit_units) return;
    throw ConfigError(
        "parallel.tensor: " + std::to_string(model.tensor->size()) +
        " ranks need explicit blocks: the units of libtorch's autograd have all of a block");
  }

  void add(std::int64_t layer) { model_.units.push_back(make(layer)); }

 private:
  std::unique_ptr<Unit> make(std::int64_t layer) {
    if (o_.type == ModelType::kGpt2) {
      return o_.explicit_units ? make_gpt2_explicit_block(o_, layer, model_.tensor)
                               : make_gpt2_block(o_, layer);
    }
    if (!shared_) shared_ = std::make_shared<const LlamaConstants>(o_, dry_);
    return o_.explicit_units ? make_llama_explicit_block(o_, layer, shared_, model_.tensor)
                             : make_llama_block(o_, layer, shared_);
  }

  Model& model_;
  const ModelOptions& o_;
  const bool dry_;
  std::shared_ptr<const LlamaConstants> shared_;
};

Model make(const ModelOptions& options, const ModelPart& part, Communicator* tensor, bool dry) {
  Model model{make_model_spec(options, part), {}, nullptr};
  const ModelOptions& filled = model.spec.options;
  if (part.tensor > 1) model.tensor = std::make_shared<TensorGroup>(part, tensor);
  BlockMaker blocks(model, dry);
  for (const int unit : units_of(filled, part)) {
    if (unit == 0) {
      model.units.push_back(make_token_embedding(filled, model.tensor));
    } else if (unit < unit_count(filled) - 1) {
      blocks.add(unit - 1);
    } else {
      model.head = filled.type == ModelType::kGpt2 ? make_layer_norm_head(filled, model.tensor)
                                                   : make_rms_norm_head(filled, model.tensor);
    }
  }
  return model;
}

}  // namespace

Model make_model(const ModelOptions& options, const ModelPart& part, Communicator* tensor) {
  return make(options, part, tensor, false);
}

Model make_dry_model(const ModelOptions& options, const ModelPart& part) {
  return make(options, part, nullptr, true);
}

}  // namespace sluice
