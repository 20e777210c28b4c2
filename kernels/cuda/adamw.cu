// AdamW with the roundings of kernels/cpu: explicit fma, correctly rounded square root and
// division.
#include "kernels/cuda/device_types.cuh"

namespace sluice::cuda {
namespace {

template <class G, class W>
__global__ void adamw_kernel(AdamWArgs a, AdamWConstants c) {
  const G* grad = static_cast<const G*>(a.grad);
  float* ms = static_cast<float*>(a.m);
  float* vs = static_cast<float*>(a.v);
  W* out = static_cast<W*>(a.weights_out);
  for (std::int64_t i = first_index(); i < a.n; i += index_stride()) {
    const float g = __fmul_rn(widen(grad[i]), c.grad_scale);
    const float m = __fmaf_rn(c.beta1, ms[i], __fmul_rn(c.one_minus_beta1, g));
    const float v = __fmaf_rn(c.beta2, vs[i], __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
    const float denominator = __fmaf_rn(__fsqrt_rn(v), c.inv_sqrt_bias2, c.eps);
    const float decayed = __fmul_rn(a.master[i], c.decay);
    const float p = __fmaf_rn(c.minus_step_size, __fdiv_rn(m, denominator), decayed);
    ms[i] = m;
    vs[i] = v;
    a.master[i] = p;
    if (out != nullptr) narrow(p, out + i);
  }
}

}  // namespace

void launch_adamw(const AdamWArgs& args, StreamRef stream) {
  const AdamWConstants constants = adamw_constants(args);
  if (args.n <= 0) return;
  check_argument(
      args.moments_dtype == DType::kFloat32,
      "CUDA AdamW keeps its moments in fp32; offload.states_dtype is for moments on host or NVMe");
  with_device_dtype(args.grad_dtype, [&](auto* grad) {
    with_device_dtype(args.weights_dtype, [&](auto* out) {
      using G = std::remove_pointer_t<decltype(grad)>;
      using W = std::remove_pointer_t<decltype(out)>;
      adamw_kernel<G, W><<<blocks_for(args.n), kThreads, 0, native(stream)>>>(args, constants);
    });
  });
  check_launch("adamw");
}

}  // namespace sluice::cuda
