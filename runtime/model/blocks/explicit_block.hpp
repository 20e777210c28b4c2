// The block of every model, with its forward, input gradient and weight gradients written out: what
// make_gpt2_explicit_block and make_llama_explicit_block (explicit_units.hpp) make.
//
// Over tensor-parallel ranks each has some heads and a slice of ffn. Forward adds the ranks'
// partial products up behind attention's output projection and behind the MLP, backward adds up the
// gradients by the norms' outputs while the weights' gradients are computed. With sequence
// parallelism norms, residual stream and dropout are of the rank's tokens only, and so is what is
// kept of them: whole rows are gathered again in backward, under the product that does not need
// them.
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

// CUDA tensors are refused: the kernels are the host's.
[[nodiscard]] std::unique_ptr<Unit> make_explicit_block(ExplicitBlockParts parts);

}  // namespace sluice
