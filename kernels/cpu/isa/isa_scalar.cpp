#include "kernels/cpu/isa/isa_tables.hpp"
#include "kernels/cpu/isa/simd_scalar.hpp"
#include "kernels/cpu/isa/table_impl.hpp"

namespace sluice::isa {

// update/isa_scalar_update.cpp has these instances.
extern template UpdateFunction<AdamWLanes<Scalar16>> update<Scalar16, AdamWLanes<Scalar16>>;
extern template UpdateFunction<LionLanes<Scalar16>> update<Scalar16, LionLanes<Scalar16>>;
extern template UpdateFunction<SgdLanes<Scalar16>> update<Scalar16, SgdLanes<Scalar16>>;

const KernelTable* scalar_table() {
  static constexpr KernelTable kTable = make_table<Scalar16>("scalar");
  return &kTable;
}

}  // namespace sluice::isa
