// Lion with the roundings of kernels/cpu.
#include "kernels/cuda/update.cuh"

namespace sluice::cuda {
namespace {

struct Lion {
  using Constants = LionConstants;
  static constexpr int kMoments = 1;

  __device__ static float update(float p, float (&moments)[kMoments], float grad,
                                 const Constants& c) {
    constexpr float kLeast = 1.17549435e-38F;  // 2^-126
    const float m = moments[0];
    const float g = __fmul_rn(grad, c.grad_scale);
    const float mixed = __fmaf_rn(c.one_minus_beta1, g, __fmul_rn(c.beta1, m));
    moments[0] = __fmaf_rn(c.one_minus_beta2, g, __fmul_rn(c.beta2, m));
    const float sign = mixed >= kLeast ? 1.0F : mixed <= -kLeast ? -1.0F : 0.0F;
    return __fmaf_rn(c.minus_lr, sign, __fmul_rn(p, c.decay));
  }
};

}  // namespace

void launch_lion(const UpdateSpan* spans, int count, const StepClip* clip, StreamRef stream) {
  launch_updates<Lion>(spans, count, lion_constants, clip, {stream, "lion"});
}

}  // namespace sluice::cuda
