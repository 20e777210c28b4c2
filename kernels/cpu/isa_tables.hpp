// The tables of the isa_*.cpp files. An AVX one may be called only where the CPU has the
// instructions; null in builds for other processors (isa_none.cpp).
#pragma once

#include "kernels/cpu/dispatch.hpp"

namespace sluice::isa {

[[nodiscard]] const KernelTable* scalar_table();
[[nodiscard]] const KernelTable* avx2_table();
[[nodiscard]] const KernelTable* avx512_table();

}  // namespace sluice::isa
