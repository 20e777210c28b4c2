// Arguments of the kernels of attention by batched products (block_launch.hpp). Pointers are device
// memory. Plain structs, also for C++17.
//
// A micro-batch's key heads are numbered through its samples: key head h of sample b is number
// b x kv_heads + h. A chunk is the `heads` key heads from number `first` on. `group` query heads
// share a key head. The query rows of a key head are (token, query head of the group), so that one
// product covers all of them.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/cuda/block_args.hpp"

namespace sluice::cuda {

struct HeadChunk {
  std::int64_t first = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t seq = 0;
};

// One of q, k, v, attention's output, or a gradient. Where it lies by tokens, head h of a token is
// at h x head_dim. Packed it is [heads, rows, group, width]: rows >= seq, width >= head_dim.
struct HeadRows {
  void* tokens = nullptr;  // of HeadCopy::dtype
  std::int64_t sample_stride = 0;
  std::int64_t token_stride = 0;
  void* packed = nullptr;
  std::int64_t rows = 0;
  std::int64_t group = 1;
};

// Copies the heads of a chunk between tokens and packed memory. To packed memory: of `dtype`, zeros
// behind `seq` and behind head_dim. From packed memory: fp32, rounded to `dtype`.
struct HeadCopy {
  static constexpr int kMost = 4;
  HeadRows of[kMost];
  int count = 0;
  DType dtype = DType::kFloat32;
  HeadChunk chunk;
  std::int64_t head_dim = 0;
  std::int64_t width = 0;  // a multiple of 8
};

// Scores of some queries of a chunk: [heads, queries, group, keys] in fp32. The first query is
// token `first_query`, the first key token `first_key`. A query sees the keys up to its own token,
// with `window` > 0 only the last `window` of them, and with `positions` [samples x seq] only those
// of its own document, which begins at token - positions[token].
//
// Forward writes weights = dropout(softmax(scale x scores)) in `dtype`. With `grad`, the gradient
// of the dropped weights, backward writes these weights and score_grad, the gradient of the
// unscaled scores. Keys that a query does not see get 0. In fp32 weights may be the scores and
// score_grad may be grad. The mask of a weight is element (h x seq + query token) x seq + key token
// of its sample's stream, where h is the query head's number in the model, first_head + its number
// here. REQUIRES: buffers on multiples of 16 bytes; keys is a multiple of 8.
struct AttentionScores {
  const float* scores = nullptr;
  void* weights = nullptr;
  const float* grad = nullptr;
  void* score_grad = nullptr;
  DType dtype = DType::kFloat32;
  HeadChunk chunk;
  std::int64_t group = 1;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t first_query = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  const std::int64_t* positions = nullptr;
  float scale = 1;
  MaskPlace mask;  // per_sample, first and offset are not read
  std::int64_t first_head = 0;
};

}  // namespace sluice::cuda
