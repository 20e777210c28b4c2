// MKL, inside libtorch, picks its kernels by vendor: on a CPU that is not Intel's it takes generic
// ones at half the rate, whatever instructions the CPU has. It asks this function, which a program
// may define. Answering by instruction set instead of vendor doubles fp32 products on AMD
// (docs/benchmarks.md). SLUICE_MKL_BY_VENDOR=1 leaves MKL its way.

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
