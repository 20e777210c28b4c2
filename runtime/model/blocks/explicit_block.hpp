// The block of every model, with forward, input gradient and weight gradients written out: the
// result of make_gpt2_explicit_block and make_llama_explicit_block (explicit_units.hpp).
//
// Each tensor-parallel rank has some heads and a slice of ffn. Forward sums the ranks' partial
// products behind attention's output projection and behind the MLP. Backward sums the gradients by
// the norms' outputs while the weights' gradients are computed. With sequence parallelism norms,
// residual stream, dropout and kept tensors cover only the rank's tokens; backward gathers whole
// rows again, under a product that does not need them.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/model/blocks/llama_units.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/tensor_group.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

struct ExplicitBlockParts {
  const ModelOptions& options;  // with its defaults filled in
  std::int64_t layer = 0;
  std::shared_ptr<const LlamaConstants> llama{};  // null: a gpt2
  std::shared_ptr<TensorGroup> group{};           // null: one tensor-parallel rank
};

[[nodiscard]] std::unique_ptr<Unit> make_explicit_block(ExplicitBlockParts parts);

}  // namespace sluice
