// Cross entropy over a vocabulary that is cut over tensor-parallel ranks: one exchange of three
// numbers for each row (kernels/cpu/slice_entropy.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.hpp"
#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/model_slices.hpp"
#include "runtime/model/tensor_group.hpp"

namespace sluice {

struct SlicedEntropy {
  at::Tensor logits;   // [rows, words of the slice] fp32 contiguous
  at::Tensor targets;  // [rows] int64, of the whole vocabulary
  Slice words;
  std::int64_t vocab = 0;
  double grad_scale = 1;
  bool gradient = false;  // takes the place of the logits, a row at its beginning
  DType gradient_dtype = DType::kFloat32;
};

// The sum of the losses, with equal bits on all ranks. Meta tensors allocate the same and return 0.
[[nodiscard]] double sliced_cross_entropy(TensorGroup& group, const SlicedEntropy& entropy);
// On a GPU, of logits without parts: writes losses, with equal bits on all ranks, and the gradient.
// The three numbers of a row are floats.
void gpu_sliced_cross_entropy(TensorGroup& group, device::Entropy entropy);

}  // namespace sluice
