// The optimizers' kernels on the stream that the model computes on, in the CUDA module.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <span>
#include <string>

#include "kernels/cuda/launch.hpp"
#include "runtime/engine/cuda_errors.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"

namespace sluice {
namespace {

// One stream runs backward, this update, and all readers of the weights, in this order. So no
// operation waits.
void launch_on(int device, const std::string& name, std::span<const UpdateSpan> spans,
               const cuda::StepClip* clip, decltype(cuda::launch_adamw)& launch) {
  translated(name + " on GPU " + std::to_string(device), [&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAGuard guard(index);
    launch(spans.data(), static_cast<int>(spans.size()), clip,
           {c10::cuda::getCurrentCUDAStream(index).stream()});
  });
}

}  // namespace
}  // namespace sluice

extern "C" {
[[gnu::visibility("default")]] void sluice_cuda_adamw(std::span<const sluice::UpdateSpan> spans,
                                                      int device,
                                                      const sluice::cuda::StepClip* clip) {
  sluice::launch_on(device, "AdamW", spans, clip, sluice::cuda::launch_adamw);
}
[[gnu::visibility("default")]] void sluice_cuda_lion(std::span<const sluice::UpdateSpan> spans,
                                                     int device,
                                                     const sluice::cuda::StepClip* clip) {
  sluice::launch_on(device, "Lion", spans, clip, sluice::cuda::launch_lion);
}
[[gnu::visibility("default")]] void sluice_cuda_sgd(std::span<const sluice::UpdateSpan> spans,
                                                    int device,
                                                    const sluice::cuda::StepClip* clip) {
  sluice::launch_on(device, "SGD", spans, clip, sluice::cuda::launch_sgd);
}
}
