// How a model's dimensions are cut over tensor-parallel ranks, and its units over stages. Pure.
//
// Heads, key heads and ffn in equal runs. With fewer key heads than ranks each key head is on a run
// of tensor / kv_heads ranks. Words in runs that are multiples of 8 rows, all alike but the last:
// nothing is padded, so a 50257 stays one everywhere.
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

// What one rank has; all of it where part.tensor is 1.
struct ModelSlices {
  Slice heads;
  Slice kv_heads;
  int kv_replicas = 1;  // ranks that have the same key heads
  Slice ffn;
  Slice vocab;
  std::int64_t vocab_width = 0;  // of the largest rank
};

// REQUIRES: with_defaults() was applied. Throws ConfigError, with the equation, where heads, key
// heads, ffn, hidden or vocab cannot be cut into part.tensor.
[[nodiscard]] ModelSlices model_slices(const ModelOptions& options, const ModelPart& part);

// Units of the whole model: embedding, blocks, loss head.
[[nodiscard]] constexpr int unit_count(const ModelOptions& options) {
  return static_cast<int>(options.layers) + 2;
}
// Those of the part by their numbers in the whole model, in order of forward. Throws Error where
// its chunks are no ranges of units in order, or the first stage lacks the embedding or the last
// one the head.
[[nodiscard]] std::vector<int> units_of(const ModelOptions& options, const ModelPart& part);

}  // namespace sluice
