// AdamW with the roundings of kernels/cpu: explicit fma, correctly rounded square root and
// division.
#include "kernels/cuda/update.cuh"

namespace sluice::cuda {
namespace {

struct AdamW {
  using Constants = AdamWConstants;
  static constexpr int kMoments = 2;

  __device__ static float update(float p, float (&moments)[kMoments], float grad,
                                 const Constants& c) {
    const float scaled = __fmul_rn(grad, c.grad_scale);
    const float g = c.l2 == 0.0F ? scaled : __fmaf_rn(c.l2, p, scaled);
    const float m = __fmaf_rn(c.beta1, moments[0], __fmul_rn(c.one_minus_beta1, g));
    const float v = __fmaf_rn(c.beta2, moments[1], __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
    moments[0] = m;
    moments[1] = v;
    const float denominator = __fmaf_rn(__fsqrt_rn(v), c.inv_sqrt_bias2, c.eps);
    return __fmaf_rn(c.minus_step_size, __fdiv_rn(m, denominator), __fmul_rn(p, c.decay));
  }
};

}  // namespace

void launch_adamw(const UpdateSpan* spans, int count, const StepClip* clip, StreamRef stream) {
  launch_updates<AdamW>(spans, count, adamw_constants, clip, {stream, "adamw"});
}

}  // namespace sluice::cuda
