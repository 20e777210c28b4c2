// ordered_add (ordered_add.hpp) for CUDA memory, with bit-identical results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

struct CudaOrderedAdd {
  const void* own = nullptr;       // this rank's own share
  const void* staged = nullptr;    // the shares of the peers, by rank, without `rank`
  std::int64_t staged_stride = 0;  // elements between two peers' shares
  float* output = nullptr;
  std::int64_t elems = 0;
  int rank = 0;
  int size = 1;
  DType input = DType::kFloat32;
  bool accumulate = false;
};

// Enqueues on the stream; does not synchronise. Returns the result of the launch.
[[nodiscard]] cudaError_t ordered_add_cuda(const CudaOrderedAdd& args, cudaStream_t stream);

}  // namespace sluice
