// AdamW on 16 lanes, for a back end S (simd_types.hpp).
#pragma once

#include "kernels/cpu/update/adamw.hpp"
#include "kernels/cpu/update/update_impl.hpp"

namespace sluice::isa {

template <class S>
struct AdamWLanes {
  using F = typename S::F;
  using Constants = AdamWConstants;
  static constexpr std::size_t kMoments = 2;

  static F update(F p, F (&moments)[kMoments], F grad, const Constants& c) {
    const F scaled = S::mul(grad, S::set1(c.grad_scale));
    // A branch: fma(0, p, g) would turn -0 into 0, and infinite weights into NaN.
    const F g = c.l2 == 0.0F ? scaled : S::fma(S::set1(c.l2), p, scaled);
    const F m = S::fma(S::set1(c.beta1), moments[0], S::mul(S::set1(c.one_minus_beta1), g));
    const F v =
        S::fma(S::set1(c.beta2), moments[1], S::mul(S::mul(S::set1(c.one_minus_beta2), g), g));
    moments[0] = m;
    moments[1] = v;
    const F denominator = S::fma(S::sqrt(v), S::set1(c.inv_sqrt_bias2), S::set1(c.eps));
    const F decayed = S::mul(p, S::set1(c.decay));
    return S::fma(S::set1(c.minus_step_size), S::div(m, denominator), decayed);
  }
};

}  // namespace sluice::isa
