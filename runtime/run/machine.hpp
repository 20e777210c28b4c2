// What this process computes with: libtorch's threads, the rate of its matrix products, its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/dtype.hpp"
#include "runtime/run/matmul_choice.hpp"

namespace sluice {

// Threads of one libtorch operation, and one for operations side by side. Before the first of them.
void set_libtorch_threads(int threads);

// FLOP/s of a square matrix product, best of a few; about 0.1 s on a CPU, where the time that this
// thread waited for a core does not count. What "% of measured rate" is of
// (peak_rate.hpp).
[[nodiscard]] double measure_gemm_rate(DType dtype, at::Device device);

// A linear layer: x [rows, in] -> y [rows, out].
struct LinearShape {
  std::int64_t rows = 1;
  std::int64_t in = 1;
  std::int64_t out = 1;
};

// How fast one thread of this CPU runs the three products of a 16-bit layer (explicit_linear.hpp)
// either way, best of a few. About 0.3 s of processor time: larger layers are measured on a piece.
// Leaves no thread behind; not to be called while others compute.
[[nodiscard]] MatmulRates measure_matmul_rates(DType dtype, const LinearShape& shape);

// Highest resident memory of the process so far, bytes.
[[nodiscard]] std::int64_t peak_resident_bytes();

}  // namespace sluice
