// Reduction over one thread block in a fixed tree: shuffles within each warp, then over the results
// of the warps. Every thread gets the result.
#pragma once

#include <cuda_runtime.h>

namespace sluice::cuda {

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <int kBlockThreads, class T, class Op>
__device__ T block_reduce(T value, Op op) {
  constexpr int kWarps = kBlockThreads / 32;
  static_assert(kWarps * 32 == kBlockThreads && kWarps <= 32 && (kWarps & (kWarps - 1)) == 0);
  __shared__ T results[kWarps];
  for (int offset = 16; offset > 0; offset /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  if (threadIdx.x % 32 == 0) results[threadIdx.x / 32] = value;
  __syncthreads();
  // Every warp repeats the last step, which saves a broadcast and a barrier.
  value = results[threadIdx.x % kWarps];
  for (int offset = kWarps / 2; offset > 0; offset /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  __syncthreads();  // the next call may reuse `results`
  return value;
}

}  // namespace sluice::cuda
