#include "kernels/cpu/isa/isa_tables.hpp"
#include "kernels/cpu/isa/simd_avx512.hpp"
#include "kernels/cpu/isa/table_impl.hpp"

namespace sluice::isa {

const KernelTable* avx512_table() {
  static constexpr KernelTable kTable = make_table<Avx512x16>("avx512");
  return &kTable;
}

}  // namespace sluice::isa
