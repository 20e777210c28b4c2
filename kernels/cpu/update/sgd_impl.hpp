// SGD with momentum on 16 lanes, for a back end S (simd_types.hpp).
#pragma once

#include "kernels/cpu/update/sgd.hpp"
#include "kernels/cpu/update/update_impl.hpp"

namespace sluice::isa {

template <class S>
struct SgdLanes {
  using F = typename S::F;
  using Constants = SgdConstants;
  static constexpr std::size_t kMoments = 1;

  static F update(F p, F (&moments)[kMoments], F grad, const Constants& c) {
    const F scaled = S::mul(grad, S::set1(c.grad_scale));
    const F g = S::fma(S::set1(c.weight_decay), p, scaled);
    moments[0] = S::add(S::mul(S::set1(c.momentum), moments[0]), g);
    return S::fma(S::set1(c.minus_lr), moments[0], p);
  }
};

}  // namespace sluice::isa
