#include "kernels/cpu/isa/isa_tables.hpp"
#include "kernels/cpu/isa/simd_avx2.hpp"
#include "kernels/cpu/isa/table_impl.hpp"

namespace sluice::isa {

const KernelTable* avx2_table() {
  static constexpr KernelTable kTable = make_table<Avx2x16>("avx2");
  return &kTable;
}

}  // namespace sluice::isa
