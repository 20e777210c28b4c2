// ordered_add (ordered_add.hpp) of many segments of CUDA memory, with bit-identical results.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/cuda/launch.hpp"

namespace sluice {

// A run of elements to add.
struct CudaAddSegment {
  const void* own = nullptr;     // this rank's own share
  const void* staged = nullptr;  // the first peer's share
  float* output = nullptr;
  std::int64_t elems = 0;
  bool accumulate = false;
};

// What the segments have in common.
struct CudaShares {
  std::int64_t staged_stride = 0;  // elements between two peers' shares, which are ordered by rank
  int rank = 0;
  int size = 1;
  DType dtype = DType::kFloat32;
};

// Enqueues on the stream; does not synchronise. One kernel for each 80 segments. Throws Error where
// a launch is refused. No output may overlap another segment's share or output.
void ordered_add_cuda(const CudaAddSegment* segments, int count, const CudaShares& shares,
                      cuda::StreamRef stream);

}  // namespace sluice
