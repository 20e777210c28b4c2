// The CUDA module's kernels of blocks, as functions that the program finds by one name. Use them
// through explicit_kernels.hpp.
#pragma once

#include "kernels/cuda/block_launch.hpp"
#include "runtime/model/device/fp8_product.hpp"

namespace sluice {

struct CudaBlockKernels {
  // The calling thread's current stream of GPU `device`. Throws Error.
  cuda::StreamRef (*stream)(int device);
  decltype(cuda::launch_norm_forward)* norm_forward;
  decltype(cuda::launch_norm_input_gradient)* norm_input_gradient;
  decltype(cuda::launch_norm_parts)* norm_parts;
  decltype(cuda::launch_column_parts)* column_parts;
  decltype(cuda::launch_join_rows)* join_rows;
  decltype(cuda::launch_column_totals)* column_totals;
  decltype(cuda::launch_gelu)* gelu;
  decltype(cuda::launch_gelu_gradient)* gelu_gradient;
  decltype(cuda::launch_swiglu)* swiglu;
  decltype(cuda::launch_swiglu_gradient)* swiglu_gradient;
  decltype(cuda::launch_rope)* rope;
  decltype(cuda::launch_branch)* branch;
  decltype(cuda::launch_branch_norm)* branch_norm;
  decltype(cuda::launch_embedding_gradient)* embedding_gradient;
  decltype(cuda::launch_entropy)* entropy;
  decltype(cuda::launch_entropy_parts)* entropy_parts;
  decltype(cuda::launch_token_lookup)* token_lookup;
  decltype(cuda::launch_copy_heads)* copy_heads;
  decltype(cuda::launch_attention_scores)* attention_scores;
  decltype(cuda::launch_fp8_quantise)* fp8_quantise;
  decltype(cuda::launch_fp8_product)* fp8_product;
};

// What the module exports.
using GetCudaBlockKernels = const CudaBlockKernels&();
inline constexpr char kGetCudaBlockKernels[] = "sluice_cuda_block_kernels";

}  // namespace sluice
