#include "kernels/cpu/isa_tables.hpp"
#include "kernels/cpu/simd_scalar.hpp"
#include "kernels/cpu/table_impl.hpp"

namespace sluice::isa {

extern template void adamw<Scalar16>(const AdamWArgs&, const AdamWConstants&, std::int64_t,
                                     std::int64_t);  // isa_scalar_adamw.cpp

const KernelTable* scalar_table() {
  static constexpr KernelTable kTable = make_table<Scalar16>("scalar");
  return &kTable;
}

}  // namespace sluice::isa
