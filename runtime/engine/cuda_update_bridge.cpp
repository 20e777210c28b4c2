// The optimizer's kernel on the stream that the model computes on, in the CUDA module. Compiled;
// not yet run on a GPU.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <string>

#include "kernels/cuda/launch.hpp"
#include "runtime/engine/cuda_errors.hpp"
#include "runtime/engine/cuda_tiers.hpp"

// Behind the backward that wrote the gradients and ahead of whatever reads the weights: all of it
// is on the one stream, so nobody waits.
extern "C" __attribute__((visibility("default"))) void sluice_cuda_adamw(
    const sluice::AdamWArgs& args, int device) {
  sluice::translated("AdamW on GPU " + std::to_string(device), [&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAGuard guard(index);
    sluice::cuda::launch_adamw(args, {c10::cuda::getCurrentCUDAStream(index).stream()});
  });
}
