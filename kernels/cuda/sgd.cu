// SGD with momentum, with the roundings of kernels/cpu.
#include "kernels/cuda/update.cuh"

namespace sluice::cuda {
namespace {

struct Sgd {
  using Constants = SgdConstants;
  static constexpr int kMoments = 1;

  __device__ static float update(float p, float (&moments)[kMoments], float grad,
                                 const Constants& c) {
    const float g = __fmaf_rn(c.weight_decay, p, __fmul_rn(grad, c.grad_scale));
    moments[0] = __fadd_rn(__fmul_rn(c.momentum, moments[0]), g);
    return __fmaf_rn(c.minus_lr, moments[0], p);
  }
};

}  // namespace

void launch_sgd(const UpdateSpan* spans, int count, const StepClip* clip, StreamRef stream) {
  launch_updates<Sgd>(spans, count, sgd_constants, clip, {stream, "sgd"});
}

}  // namespace sluice::cuda
