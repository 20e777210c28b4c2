// Softmax cross entropy of a chunk of fp32 logits, and its gradient in the logits' own memory.
//
// Bits do not depend on instruction set or thread count; a row's result does not depend on which
// rows share its call. exp is our own, within 2e-7 relative. Nothing is hidden: a NaN or +inf
// logit, or a row of -inf, makes the returned loss and the row's gradient non-finite. Single -inf
// logits are masks.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

inline constexpr std::int64_t kIgnoreTarget = -100;

struct CrossEntropyArgs {
  float* logits = nullptr;  // [rows, row_stride]; the first `width` of each row are ours
  std::int64_t rows = 0;
  std::int64_t row_stride = 0;            // elements, >= width
  std::int64_t vocab = 0;                 // columns that take part
  std::int64_t width = 0;                 // vocab and its padding, >= vocab
  const std::int64_t* targets = nullptr;  // [rows], in [0, vocab) or kIgnoreTarget
  float scale = 1.0F;  // of the gradient, e.g. loss scale / tokens of the global batch
  // Of the gradient, which begins where the row of logits does: 16-bit rows lie 2 x row_stride
  // elements apart, and the rest of a row is undefined. On the host only.
  DType gradient_dtype = DType::kFloat32;
};

// Logits become (softmax - onehot) * scale, rounded to gradient_dtype; columns from vocab to width
// and rows with kIgnoreTarget become 0. Returns the sum over rows of the (unscaled) losses, added
// in row order. Throws Error on a target out of range, before anything is written.
[[nodiscard]] double softmax_cross_entropy(const CrossEntropyArgs& args);

// The same sum of losses; the logits stay as they are.
[[nodiscard]] double softmax_cross_entropy_loss(const CrossEntropyArgs& args);

}  // namespace sluice
