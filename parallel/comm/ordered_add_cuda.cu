#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "parallel/comm/ordered_add_cuda.hpp"

namespace sluice {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 4096;  // a grid-stride loop covers the remaining elements

__device__ float widen(float value) { return value; }
__device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ float widen(__half value) { return __half2float(value); }

template <typename T>
__global__ void ordered_add_kernel(CudaOrderedAdd args) {
  const T* own = static_cast<const T*>(args.own);
  const T* staged = static_cast<const T*>(args.staged);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
       i < args.elems; i += step) {
    float sum = 0.0F;
    for (int r = 0; r < args.size; ++r) {
      const int slot = r < args.rank ? r : r - 1;
      const float value = widen(r == args.rank ? own[i] : staged[slot * args.staged_stride + i]);
      sum = r == 0 ? value : __fadd_rn(sum, value);
    }
    args.output[i] = args.accumulate ? __fadd_rn(args.output[i], sum) : sum;
  }
}

template <typename T>
void launch(const CudaOrderedAdd& args, cudaStream_t stream) {
  const std::int64_t wanted = (args.elems + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  ordered_add_kernel<T><<<blocks, kThreads, 0, stream>>>(args);
}

}  // namespace

cudaError_t ordered_add_cuda(const CudaOrderedAdd& args, cudaStream_t stream) {
  if (args.elems == 0) return cudaSuccess;
  switch (args.input) {
    case DType::kFloat32:
      launch<float>(args, stream);
      break;
    case DType::kBFloat16:
      launch<__nv_bfloat16>(args, stream);
      break;
    case DType::kFloat16:
      launch<__half>(args, stream);
      break;
  }
  return cudaGetLastError();
}

}  // namespace sluice
