// The updates of all optimizers for processors without AVX2, apart from isa_scalar.cpp to share its
// compile time.
#include "kernels/cpu/isa/simd_scalar.hpp"
#include "kernels/cpu/update/adamw_impl.hpp"
#include "kernels/cpu/update/lion_impl.hpp"
#include "kernels/cpu/update/sgd_impl.hpp"

namespace sluice::isa {

template UpdateFunction<AdamWLanes<Scalar16>> update<Scalar16, AdamWLanes<Scalar16>>;
template UpdateFunction<LionLanes<Scalar16>> update<Scalar16, LionLanes<Scalar16>>;
template UpdateFunction<SgdLanes<Scalar16>> update<Scalar16, SgdLanes<Scalar16>>;

}  // namespace sluice::isa
