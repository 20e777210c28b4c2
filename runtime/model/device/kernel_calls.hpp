// What the sources of this folder need to call the CUDA module's kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/device/cuda_kernels.hpp"
#include "runtime/model/math/explicit_kernels.hpp"

namespace sluice::device {

[[nodiscard]] const CudaBlockKernels& block_kernels();
// The current stream of x's GPU.
[[nodiscard]] cuda::StreamRef stream_of(const at::Tensor& x);
[[nodiscard]] cuda::MaskPlace mask_of(const DropoutPlace& place);

}  // namespace sluice::device
