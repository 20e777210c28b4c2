// Softmax cross entropy over a vocabulary that is split over ranks. Logits are never gathered:
//
//   slice_softmax: three numbers per row from this rank's slice --> the ranks exchange the numbers
//     --> slice_loss: the loss --> slice_gradient: the gradient of this rank's slice
//
// The numbers of a row are combined in rank order, in double, so all ranks get the same bits of the
// loss. Non-finite logits, ignored rows and reproducibility are as in softmax_cross_entropy.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

// The slice [first, first + words) of a vocabulary of `vocab` words.
struct EntropySlice {
  float* logits = nullptr;  // [rows, words]
  std::int64_t rows = 0;
  std::int64_t words = 0;
  std::int64_t first = 0;
  std::int64_t vocab = 0;
  const std::int64_t* targets = nullptr;  // [rows], in [0, vocab) or kIgnoreTarget
};

// The contribution of one slice to one row.
struct RowPart {
  double max = 0;
  double sum = 0;     // of exp(x - max)
  double target = 0;  // logit of the target; 0 if the target is in another slice
};

// Fills parts: [rows]. With `exponentials`, replaces the logits by exp(x - max), the input of
// slice_gradient(). Throws Error for a target out of range, before it writes.
void slice_softmax(const EntropySlice& slice, RowPart* parts, bool exponentials);

// The sum over rows of the losses, added in row order. parts: [ranks, rows].
[[nodiscard]] double slice_loss(const EntropySlice& slice, std::span<const RowPart> parts);

struct SliceGradient {
  int rank = 0;        // rank of this slice
  float scale = 1.0F;  // factor of the gradient
  DType dtype = DType::kFloat32;
};
// Replaces the exponentials of slice_softmax() by (softmax - onehot) x scale, or 0 in ignored rows.
// 16-bit rows begin at the same addresses as fp32 rows (CrossEntropyArgs::gradient_dtype).
void slice_gradient(const EntropySlice& slice, std::span<const RowPart> parts,
                    const SliceGradient& gradient);

}  // namespace sluice
