// Softmax cross entropy where a row of logits is cut over ranks, each with a slice of the
// vocabulary: every rank makes three numbers a row from its slice, all get those of all, and each
// then makes the loss and the gradient of its slice. Logits are never gathered.
//
// A row's numbers are put together in the order of ranks, in double, so the loss has the same bits
// on all of them. Non-finite logits and rows as in softmax_cross_entropy.hpp, as is what bits do
// not depend on.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

// Words [first, first + words) of `vocab`.
struct EntropySlice {
  float* logits = nullptr;  // [rows, words], the rank's
  std::int64_t rows = 0;
  std::int64_t words = 0;
  std::int64_t first = 0;
  std::int64_t vocab = 0;
  const std::int64_t* targets = nullptr;  // [rows], in [0, vocab) or kIgnoreTarget
};

// What one slice has of a row.
struct RowPart {
  double max = 0;
  double sum = 0;     // of exp(x - max)
  double target = 0;  // the target's logit, 0 where it is another slice's
};

// parts: [rows]. With `exponentials` the logits become exp(x - max), which slice_entropy's gradient
// starts from. Throws Error on a target out of range, before anything is written.
void slice_softmax(const EntropySlice& slice, RowPart* parts, bool exponentials);

// The sum over rows of the losses, added in row order. parts: [ranks, rows].
[[nodiscard]] double slice_loss(const EntropySlice& slice, std::span<const RowPart> parts);

struct SliceGradient {
  int rank = 0;        // whose the slice is
  float scale = 1.0F;  // of the gradient
  DType dtype = DType::kFloat32;
};
// What slice_softmax left becomes (softmax - onehot) x scale, 0 in rows to ignore; 16-bit rows
// begin where the fp32 ones do (CrossEntropyArgs::gradient_dtype).
void slice_gradient(const EntropySlice& slice, std::span<const RowPart> parts,
                    const SliceGradient& gradient);

}  // namespace sluice
