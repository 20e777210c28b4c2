// Sums of squares of many spans of device memory, without a wait of the host between them.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/cuda/launch.hpp"

namespace sluice::cuda {

struct SquaresSpan {
  const void* values = nullptr;
  std::int64_t elems = 0;
  DType dtype = DType::kFloat32;  // or bf16
};

// Doubles of scratch memory that the spans need.
[[nodiscard]] std::int64_t squares_scratch(const SquaresSpan* spans, int count);

// sums[i] = sum of squares of spans[i]. CPU bits: those of sum_squares (kernels/cpu/reduce.hpp).
// `spans` is host memory and is read before the function returns; `scratch` and `sums` are device
// memory. Two kernels for each 128 spans.
void launch_sum_squares(const SquaresSpan* spans, int count, double* scratch, double* sums,
                        StreamRef stream);

}  // namespace sluice::cuda
