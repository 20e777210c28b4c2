// The tables of the isa_*.cpp files. Call an AVX table only if the CPU has its instructions. Null
// in builds for other processors (isa_none.cpp).
#pragma once

#include "kernels/cpu/dispatch.hpp"

namespace sluice::isa {

[[nodiscard]] const KernelTable* scalar_table();
[[nodiscard]] const KernelTable* avx2_table();
[[nodiscard]] const KernelTable* avx512_table();

}  // namespace sluice::isa
