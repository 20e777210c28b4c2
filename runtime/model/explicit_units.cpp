#include "runtime/model/explicit_units.hpp"

#include <utility>

#include "runtime/model/explicit_block.hpp"
#include "runtime/model/gpt2_units.hpp"

namespace sluice {

std::unique_ptr<Unit> make_gpt2_explicit_block(const ModelOptions& options, std::int64_t layer,
                                               std::shared_ptr<TensorGroup> group) {
  auto twin = group ? nullptr : make_gpt2_block(options, layer);
  return make_explicit_block(
      {.options = options, .layer = layer, .group = std::move(group), .twin = std::move(twin)});
}

std::unique_ptr<Unit> make_llama_explicit_block(const ModelOptions& options, std::int64_t layer,
                                                std::shared_ptr<const LlamaConstants> shared,
                                                std::shared_ptr<TensorGroup> group) {
  auto twin = group ? nullptr : make_llama_block(options, layer, shared);
  return make_explicit_block({.options = options,
                              .layer = layer,
                              .llama = std::move(shared),
                              .group = std::move(group),
                              .twin = std::move(twin)});
}

}  // namespace sluice
