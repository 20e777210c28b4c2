// Processors that are not x86-64: the scalar table is the only one.
#include "kernels/cpu/isa_tables.hpp"

namespace sluice::isa {

const KernelTable* avx2_table() { return nullptr; }
const KernelTable* avx512_table() { return nullptr; }

}  // namespace sluice::isa
