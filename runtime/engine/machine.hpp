// What this process computes with: libtorch's threads, the rate of its matrix products, its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/base/dtype.hpp"

namespace sluice {

// Threads of one libtorch operation, and one for operations side by side. Before the first of them.
void set_libtorch_threads(int threads);

// FLOP/s of a square matrix product, best of a few; about 0.1 s on a CPU. What "% of peak" is of.
[[nodiscard]] double measure_gemm_rate(DType dtype, at::Device device);

// Highest resident memory of the process so far, bytes.
[[nodiscard]] std::int64_t peak_resident_bytes();

}  // namespace sluice
