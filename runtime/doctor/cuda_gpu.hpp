// Exports of the CUDA module for the doctor. C names, C++ types: both sides come from one build.
#pragma once

namespace sluice {

class GpuDevice;

// Opens visible GPU `device` and makes it the calling thread's. Throws Error.
using OpenCudaGpu = GpuDevice*(int device);
inline constexpr char kOpenCudaGpu[] = "sluice_open_cuda_gpu";

}  // namespace sluice
