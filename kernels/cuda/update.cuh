// An update for every optimizer: one thread an element, with the roundings of kernels/cpu.
//
// An optimizer's arithmetic `Rule` has Constants, kMoments, and update(), which returns the new
// master weight and replaces the moments by their new values.
#pragma once

#include "kernels/cuda/device_types.cuh"

namespace sluice::cuda {

template <class Rule, class G, class W>
__global__ void update_kernel(UpdateSpan a, typename Rule::Constants c) {
  const G* grad = static_cast<const G*>(a.grad);
  W* out = static_cast<W*>(a.weights_out);
  for (std::int64_t i = first_index(); i < a.n; i += index_stride()) {
    float moments[Rule::kMoments];
    for (int k = 0; k < Rule::kMoments; ++k) moments[k] = static_cast<float*>(a.moments[k])[i];
    const float p = Rule::update(a.master[i], moments, widen(grad[i]), c);
    for (int k = 0; k < Rule::kMoments; ++k) static_cast<float*>(a.moments[k])[i] = moments[k];
    a.master[i] = p;
    if (out != nullptr) narrow(p, out + i);
  }
}

template <class Rule>
void launch_update(const UpdateSpan& span, const typename Rule::Constants& constants,
                   StreamRef stream, const char* name) {
  if (span.n <= 0) return;
  check_argument(span.moments_dtype == DType::kFloat32,
                 "CUDA updates keep moments in fp32; offload.states_dtype is for moments on host "
                 "or NVMe");
  with_device_dtype(span.grad_dtype, [&](auto* grad) {
    with_device_dtype(span.weights_dtype, [&](auto* out) {
      using G = std::remove_pointer_t<decltype(grad)>;
      using W = std::remove_pointer_t<decltype(out)>;
      update_kernel<Rule, G, W>
          <<<blocks_for(span.n), kThreads, 0, native(stream)>>>(span, constants);
    });
  });
  check_launch(name);
}

}  // namespace sluice::cuda
