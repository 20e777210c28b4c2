// AdamW's 18 instances for processors without AVX2: a quarter of what isa_scalar.cpp would take to
// compile.
#include "kernels/cpu/adamw_impl.hpp"
#include "kernels/cpu/simd_scalar.hpp"

namespace sluice::isa {

template void adamw<Scalar16>(const AdamWArgs&, const AdamWConstants&, std::int64_t, std::int64_t);

}  // namespace sluice::isa
