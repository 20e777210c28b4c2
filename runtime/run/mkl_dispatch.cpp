// MKL, inside libtorch, picks its kernels by vendor: on a CPU that is not Intel's MKL takes generic
// ones at half the rate, whatever instructions the CPU has. MKL asks this function, which a program
// may define. An answer by instruction set doubles fp32 products on AMD (docs/benchmarks.md).
// SLUICE_MKL_BY_VENDOR=1 leaves the answer to MKL.
//
// A source of programs (sluice_mkl_dispatch), not of a library: a library that defines the function
// would change the arithmetic of every program that links the library.

#include <cstdlib>

#include "kernels/cpu/cpu_features.hpp"

extern "C" int mkl_serv_intel_cpu_true();

extern "C" int mkl_serv_intel_cpu_true() {
  static const bool take_fast_kernels = [] {
    const char* by_vendor = std::getenv("SLUICE_MKL_BY_VENDOR");
    const bool asked = by_vendor != nullptr && *by_vendor == '1';
    return !asked && sluice::detect_isa() != sluice::Isa::kScalar;
  }();
  return take_fast_kernels ? 1 : 0;
}
