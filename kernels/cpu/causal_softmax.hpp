// Softmax of attention scores under the causal mask, a block of queries at a time, fp32, on the
// compute threads. Bits do not depend on instruction set, threads or the size of blocks.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// [heads, queries, keys] contiguous: the keys at positions first_key .. first_key + keys - 1 and
// the last `queries` of these positions as queries. A query sees the keys up to its own, with
// `window` > 0 only the last `window` of them. REQUIRES: queries <= keys; first_key is one that the
// first query needs no key before.
struct CausalBlock {
  float* scores = nullptr;
  std::int64_t heads = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  float scale = 1;
  std::int64_t first_key = 0;
  std::int64_t window = 0;  // 0: all keys up to the query's
};

// scores = softmax(scale * scores) over the visible keys; 0 for the others.
void causal_softmax(const CausalBlock& block);

// grad = scale * weights * (grad - sum(weights * grad)): from the gradient by the weights (what
// causal_softmax left in block.scores) to that by the unscaled scores. grad: as block.scores.
void causal_softmax_gradient(const CausalBlock& block, float* grad);

// Drops weights out: out = weights * keep / (1 - p). Head i of the block is head h = first_head + i
// * head_step of all; the mask of its weight is element (h * seq + query position) * seq + key
// position of the stream, so that it does not depend on the block. out: as block.scores, may be it.
struct WeightDropout {
  double p = 0;
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::int64_t first_head = 0;
  std::int64_t head_step = 1;
  std::int64_t seq = 0;
};
void drop_weights(const CausalBlock& block, const float* weights, float* out,
                  const WeightDropout& dropout);

}  // namespace sluice
