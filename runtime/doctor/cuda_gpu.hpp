// What the CUDA module exports for the doctor. C names, C++ types: both sides are of one build.
// Compiled in every build with CUDA; not yet run on a GPU.
#pragma once

namespace sluice {

class GpuDevice;

// GPU `device` of those visible, which becomes the calling thread's. Throws Error.
using OpenCudaGpu = GpuDevice*(int device);
inline constexpr char kOpenCudaGpu[] = "sluice_open_cuda_gpu";

}  // namespace sluice
