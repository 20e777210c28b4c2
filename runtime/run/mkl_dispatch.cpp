// MKL, inside libtorch, picks kernels by vendor. On a CPU of another vendor than Intel, MKL takes
// generic kernels at half the rate, even if the CPU has the instructions. MKL calls the function
// below, which a program may define. An answer by instruction set doubles the rate of fp32 products
// on AMD (docs/benchmarks.md). SLUICE_MKL_BY_VENDOR=1 leaves the answer to MKL.
//
// Only programs link this source (sluice_mkl_dispatch), not libraries: a library with the function
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
