// Softmax of attention scores under the causal mask, for one block of queries. fp32, on the compute
// threads. Bits do not depend on instruction set, threads or block size.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// Scores [heads, queries, keys], contiguous. The keys have positions first_key .. first_key + keys
// - 1; the queries have the last `queries` of these positions. A query sees the keys up to its own
// position, with `window` > 0 only the last `window` of them. REQUIRES: queries <= keys; the first
// query sees no key before first_key.
struct CausalBlock {
  float* scores = nullptr;
  std::int64_t heads = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  float scale = 1;
  std::int64_t first_key = 0;
  std::int64_t window = 0;  // 0: all keys up to the query's
};

// scores = softmax(scale * scores) over the visible keys; 0 for all other keys.
void causal_softmax(const CausalBlock& block);

// grad = scale * weights * (grad - sum(weights * grad)), with the weights that causal_softmax left
// in block.scores. In: gradient of the weights. Out: gradient of the unscaled scores. `grad` has
// the shape of block.scores.
void causal_softmax_gradient(const CausalBlock& block, float* grad);

// Dropout of attention weights: out = weights * keep / (1 - p). Head i of the block is model head
// h = first_head + i * head_step. The mask of a weight is element (h * seq + query position) * seq
// + key position of the stream, so the mask does not depend on the block. `out` has the shape of
// block.scores and may be the same buffer.
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
