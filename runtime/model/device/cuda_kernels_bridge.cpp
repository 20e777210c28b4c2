// The kernels of blocks on the stream that libtorch's operators use, in the CUDA module.
#include <c10/cuda/CUDAStream.h>

#include "runtime/model/device/cuda_kernels.hpp"

namespace sluice {
namespace {

cuda::StreamRef current_stream(int device) {
  return {c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream()};
}

constexpr CudaBlockKernels kKernels{.stream = current_stream,
                                    .norm_forward = cuda::launch_norm_forward,
                                    .norm_input_gradient = cuda::launch_norm_input_gradient,
                                    .norm_parts = cuda::launch_norm_parts,
                                    .column_parts = cuda::launch_column_parts,
                                    .join_rows = cuda::launch_join_rows,
                                    .column_totals = cuda::launch_column_totals,
                                    .gelu = cuda::launch_gelu,
                                    .gelu_gradient = cuda::launch_gelu_gradient,
                                    .swiglu = cuda::launch_swiglu,
                                    .swiglu_gradient = cuda::launch_swiglu_gradient,
                                    .rope = cuda::launch_rope,
                                    .branch = cuda::launch_branch,
                                    .branch_norm = cuda::launch_branch_norm,
                                    .embedding_gradient = cuda::launch_embedding_gradient,
                                    .entropy = cuda::launch_entropy,
                                    .entropy_parts = cuda::launch_entropy_parts,
                                    .token_lookup = cuda::launch_token_lookup,
                                    .copy_heads = cuda::launch_copy_heads,
                                    .attention_scores = cuda::launch_attention_scores,
                                    .fp8_quantise = cuda::launch_fp8_quantise,
                                    .fp8_product = cuda::launch_fp8_product};

}  // namespace
}  // namespace sluice

extern "C" {
[[gnu::visibility("default")]] const sluice::CudaBlockKernels& sluice_cuda_block_kernels() {
  return sluice::kKernels;
}
}
