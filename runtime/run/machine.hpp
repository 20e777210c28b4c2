// This process's libtorch threads, rate of matrix products, and peak memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/dtype.hpp"
#include "runtime/run/matmul_choice.hpp"

namespace sluice {

// Sets the threads of one libtorch operation, and one thread for concurrent operations. Call before
// the first operation.
void set_libtorch_threads(int threads);

// FLOP/s of a square matrix product, the best of a few; the base of "% of measured rate"
// (peak_rate.hpp). Takes at most 0.2 s on a CPU, without this thread's wait for a core. The number
// of products depends on their times. Failpoint machine.gemm_rate, poisoned: only those of the
// smallest size, a fixed number.
[[nodiscard]] double measure_gemm_rate(DType dtype, at::Device device);

// A linear layer: x [rows, in] -> y [rows, out].
struct LinearShape {
  std::int64_t rows = 1;
  std::int64_t in = 1;
  std::int64_t out = 1;
};

// FLOP/s of one CPU thread for the three products of a 16-bit layer (explicit_linear.hpp), native
// and in fp32, the best of a few. Takes about 0.3 s of processor time: only a piece of a large
// layer is measured. Leaves no thread behind. Do not call while other threads compute.
[[nodiscard]] MatmulRates measure_matmul_rates(DType dtype, const LinearShape& shape);

// Highest resident memory of the process so far, bytes.
[[nodiscard]] std::int64_t peak_resident_bytes();

}  // namespace sluice
