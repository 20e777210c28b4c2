// Softmax of attention scores under the causal mask, a block of queries at a time, fp32, on the
// compute threads. Bits do not depend on instruction set, threads or the size of blocks.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.hpp"

namespace sluice {

// [heads, queries, keys] contiguous; query i of a head stands at position first_query + i and sees
// the keys 0 .. first_query + i. REQUIRES: first_query + queries == keys.
struct CausalBlock {
  float* scores = nullptr;
  std::int64_t heads = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  float scale = 1;
};

// scores = softmax(scale * scores) over the visible keys; 0 for the others.
void causal_softmax(const CausalBlock& block);

// grad = scale * weights * (grad - sum(weights * grad)): from the gradient by the weights (what
// causal_softmax left in block.scores) to that by the unscaled scores. grad: as block.scores.
void causal_softmax_gradient(const CausalBlock& block, float* grad);

// Drops weights out: out = weights * keep / (1 - p). The mask of a weight is element
// ((first_head + head) * seq + query position) * seq + key of the stream, so that it does not
// depend on the block. out: as block.scores, may be it.
struct WeightDropout {
  double p = 0;
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::int64_t first_head = 0;  // which one the block's first head is
  std::int64_t seq = 0;
};
void drop_weights(const CausalBlock& block, const float* weights, float* out,
                  const WeightDropout& dropout);

}  // namespace sluice
