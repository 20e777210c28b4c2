// Element types on the device, and the grid of all element-wise kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/dtype.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"

namespace sluice::cuda {

// Calls f with a null pointer of the device's element type.
template <class Fn>
void with_device_dtype(DType dtype, Fn f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(static_cast<float*>(nullptr));
    case DType::kBFloat16:
      return f(static_cast<Bf16*>(nullptr));
    case DType::kFloat16:
      return f(static_cast<Half*>(nullptr));
  }
}

inline constexpr int kThreads = 256;
inline constexpr int kWarpThreads = 32;

// Blocks of kThreads for n elements in a grid-stride loop; at most 8 per multiprocessor of a large
// GPU.
inline unsigned blocks_for(std::int64_t n) {
  const std::int64_t wanted = (n + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < 1056 ? wanted : 1056);
}

__device__ __forceinline__ std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t index_stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

inline cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream.stream); }

// Throws Error if the previous launch was refused.
void check_launch(const char* kernel);

// Throws Error with the message. For .cu files, whose C++ version is too old for error.hpp.
void check_argument(bool valid, const char* message);

}  // namespace sluice::cuda
