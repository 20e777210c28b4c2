// Processors other than x86-64 have only the scalar table.
#include "kernels/cpu/isa/isa_tables.hpp"

namespace sluice::isa {

const KernelTable* avx2_table() { return nullptr; }
const KernelTable* avx512_table() { return nullptr; }

}  // namespace sluice::isa
