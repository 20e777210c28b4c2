// Softmax cross entropy of a chunk of fp32 logits. The gradient replaces the logits in memory.
//
// Bits do not depend on instruction set or threads. The result of a row does not depend on the
// other rows of the call. exp is exact to 2e-7 relative. A NaN or +inf logit, or a row of -inf,
// makes the loss and the row's gradient non-finite. Single -inf logits are masks.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

inline constexpr std::int64_t kIgnoreTarget = -100;

struct CrossEntropyArgs {
  float* logits = nullptr;  // [rows, row_stride]; uses the first `width` elements of each row
  std::int64_t rows = 0;
  std::int64_t row_stride = 0;            // elements, >= width
  std::int64_t vocab = 0;                 // columns of the softmax
  std::int64_t width = 0;                 // vocab and its padding, >= vocab
  const std::int64_t* targets = nullptr;  // [rows], in [0, vocab) or kIgnoreTarget
  float scale = 1.0F;  // factor of the gradient: loss scale / tokens of the global batch
  // A gradient row begins at the address of its row of logits. So 16-bit rows lie 2 x row_stride
  // elements apart, and the other half of a row's memory is undefined. Host only.
  DType gradient_dtype = DType::kFloat32;
};

// Replaces the logits by (softmax - onehot) * scale, rounded to gradient_dtype. Columns from vocab
// to width and rows with kIgnoreTarget become 0. Returns the sum of the unscaled losses in row
// order. Throws Error for a target out of range, before it writes.
[[nodiscard]] double softmax_cross_entropy(const CrossEntropyArgs& args);

// Returns the same sum of losses without changing the logits.
[[nodiscard]] double softmax_cross_entropy_loss(const CrossEntropyArgs& args);

}  // namespace sluice
