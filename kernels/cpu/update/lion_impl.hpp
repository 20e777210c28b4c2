// Lion on 16 lanes, for a back end S (simd_types.hpp).
#pragma once

#include "kernels/cpu/update/lion.hpp"
#include "kernels/cpu/update/update_impl.hpp"

namespace sluice::isa {

template <class S>
struct LionLanes {
  using F = typename S::F;
  using Constants = LionConstants;
  static constexpr std::size_t kMoments = 1;

  static F update(F p, F (&moments)[kMoments], F grad, const Constants& c) {
    const F m = moments[0];
    const F g = S::mul(grad, S::set1(c.grad_scale));
    const F mixed = S::fma(S::set1(c.one_minus_beta1), g, S::mul(S::set1(c.beta1), m));
    moments[0] = S::fma(S::set1(c.one_minus_beta2), g, S::mul(S::set1(c.beta2), m));
    return S::fma(S::set1(c.minus_lr), sign(mixed), S::mul(p, S::set1(c.decay)));
  }

  static F sign(F x) {
    const F least = S::set1(0x1p-126F);
    const F one = S::set1(1.0F);
    return S::sub(S::zero_below(x, least, one),
                  S::zero_below(S::sub(S::set1(0.0F), x), least, one));
  }
};

}  // namespace sluice::isa
