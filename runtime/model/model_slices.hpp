// Cuts a model's dimensions over tensor-parallel ranks, and its units over pipeline stages. Pure.
//
// Heads, key heads and ffn are cut in equal runs. With fewer key heads than ranks, each key head is
// on a run of tensor / kv_heads ranks. The vocabulary is cut in runs that are multiples of 8 rows,
// all equal but the last. Nothing is padded, so a vocabulary of 50257 stays one on every mesh.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/model_options.hpp"
#include "runtime/model/model_part.hpp"

namespace sluice {

// [first, first + count) of a dimension.
struct Slice {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// The slices of one rank; everything if part.tensor is 1.
struct ModelSlices {
  Slice heads;
  Slice kv_heads;
  int kv_replicas = 1;  // ranks that have the same key heads
  Slice ffn;
  Slice vocab;
  std::int64_t vocab_width = 0;  // rows of the rank with most
};

// REQUIRES: with_defaults() was applied. Throws ConfigError with the equation if heads, key heads,
// ffn, hidden or vocab cannot be cut into part.tensor.
[[nodiscard]] ModelSlices model_slices(const ModelOptions& options, const ModelPart& part);

// Units of the whole model: embedding, blocks, loss head.
[[nodiscard]] constexpr int unit_count(const ModelOptions& options) {
  return static_cast<int>(options.layers) + 2;
}
// The units of the part by their numbers in the whole model, in order of forward. Throws Error if
// the chunks are no ranges of units in order, the first stage lacks the embedding, or the last
// stage lacks the head.
[[nodiscard]] std::vector<int> units_of(const ModelOptions& options, const ModelPart& part);

}  // namespace sluice
