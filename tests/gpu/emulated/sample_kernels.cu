#include <cuda_runtime.h>

#include "tests/gpu/emulated/sample_kernels.hpp"

namespace emulated_gpu {
namespace {

constexpr unsigned kAll = 0xffffffffU;

template <bool kBarrier>
__global__ void reverse(int* out) {
  __shared__ int values[kSampleThreads];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = values[kSampleThreads - 1 - threadIdx.x];
}

template <bool kBarrier>
__global__ void neighbour(int* out) {
  __shared__ int values[32];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (kBarrier) __syncwarp();
  out[threadIdx.x] = values[(threadIdx.x + 1) % 32];
}

__global__ void last_block(int* out) { *out = static_cast<int>(blockIdx.x); }

__global__ void places(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned place = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[place] += static_cast<int>(place);
}

__global__ void warp(int* sum, unsigned* most, int* above) {
  const int own = static_cast<int>(threadIdx.x);
  int all = own;
  for (int other = 16; other > 0; other /= 2) all += __shfl_xor_sync(kAll, all, other);
  sum[own] = all;
  most[own] = __reduce_max_sync(kAll, threadIdx.x);
  above[own] = __shfl_down_sync(kAll, own, 1);
}

__global__ void unwritten(int* out) {
  __shared__ int value;
  *out = value;
}

__global__ void ended_lane(int* out) {
  if (threadIdx.x < 31) out[threadIdx.x] = __shfl_xor_sync(kAll, 1, 1);
}
__global__ void other_operation(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_xor_sync(kAll, 1, 1);
  } else {
    out[threadIdx.x] = __shfl_xor_sync(kAll, 2, 1);
  }
}
__global__ void barrier_in_warp(int* out) {
  if (threadIdx.x == 5) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  *out = 1;
}
__global__ void barrier(int* out) {
  if (threadIdx.x < 64) __syncthreads();
  *out = 1;
}

}  // namespace

void launch_reverse(int* out, bool with_barrier, cudaStream_t stream) {
  if (with_barrier) {
    reverse<true><<<1, kSampleThreads, 0, stream>>>(out);
  } else {
    reverse<false><<<1, kSampleThreads, 0, stream>>>(out);
  }
}
void launch_neighbour(int* out, bool with_barrier, cudaStream_t stream) {
  if (with_barrier) {
    neighbour<true><<<1, 32, 0, stream>>>(out);
  } else {
    neighbour<false><<<1, 32, 0, stream>>>(out);
  }
}
void launch_last_block(int* out, int blocks, cudaStream_t stream) {
  last_block<<<static_cast<unsigned>(blocks), 1, 0, stream>>>(out);
}
void launch_places(int* out, cudaStream_t stream) {
  places<<<dim3(2, 3, 2), dim3(4, 3, 5), 0, stream>>>(out);
}
void launch_warp(int* sum, unsigned* most, int* above, cudaStream_t stream) {
  warp<<<1, 32, 0, stream>>>(sum, most, above);
}
void launch_unwritten(int* out, cudaStream_t stream) { unwritten<<<1, 1, 0, stream>>>(out); }

void launch_fault(int* out, Fault fault, cudaStream_t stream) {
  if (fault == Fault::kEndedLane) ended_lane<<<1, 32, 0, stream>>>(out);
  if (fault == Fault::kOtherOperation) other_operation<<<1, 32, 0, stream>>>(out);
  if (fault == Fault::kMissingLane) neighbour<true><<<1, 31, 0, stream>>>(out);
  if (fault == Fault::kBarrierInWarp) barrier_in_warp<<<1, 32, 0, stream>>>(out);
  if (fault == Fault::kBarrier) barrier<<<1, kSampleThreads, 0, stream>>>(out);
}

}  // namespace emulated_gpu
