#include "runtime/model/blocks/explicit_units.hpp"

#include <utility>

#include "runtime/model/blocks/explicit_block.hpp"

namespace sluice {

std::unique_ptr<Unit> make_gpt2_explicit_block(const ModelOptions& options, std::int64_t layer,
                                               std::shared_ptr<TensorGroup> group) {
  return make_explicit_block({.options = options, .layer = layer, .group = std::move(group)});
}

std::unique_ptr<Unit> make_llama_explicit_block(const ModelOptions& options, std::int64_t layer,
                                                std::shared_ptr<const LlamaConstants> shared,
                                                std::shared_ptr<TensorGroup> group) {
  return make_explicit_block(
      {.options = options, .layer = layer, .llama = std::move(shared), .group = std::move(group)});
}

}  // namespace sluice
