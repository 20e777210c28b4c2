// What the CUDA module exports for memory tiers and for updates on the device. C names, C++ types:
// both sides are of one build. Compiled in every build with CUDA; not yet run on a GPU.
#pragma once

#include <memory>
#include <string>

namespace sluice {

class DeviceCopies;
class PageSource;
struct UpdateSpan;

// Copies to and from GPU `device`, by streams of its own. Throws Error.
using MakeCudaCopies = DeviceCopies*(int device);
inline constexpr char kMakeCudaCopies[] = "sluice_make_cuda_copies";

// Pages of `pages`, exactly these, registered for DMA with every GPU. map() throws BudgetError
// where the driver refuses, with the bytes and the memlock limit.
using MakeCudaPages = PageSource*(const std::shared_ptr<PageSource>& pages);
inline constexpr char kMakeCudaPages[] = "sluice_make_cuda_pages";

// Makes GPU `device` the calling thread's. Throws Error.
using UseGpu = void(int device);
inline constexpr char kUseGpu[] = "sluice_use_gpu";

// Caps what libtorch's caching allocator reserves on GPU `device` at `share` of the card's memory.
// Throws Error.
using LimitGpuMemory = void(int device, double share);
inline constexpr char kLimitGpuMemory[] = "sluice_limit_gpu_memory";

// What GPU `device` calls itself. Throws Error.
using GpuName = void(int device, std::string& name);
inline constexpr char kGpuName[] = "sluice_gpu_name";

// An optimizer's update of memory of GPU `device`, on the calling thread's current stream there;
// enqueues and returns. Each optimizer has one, whose name is OptimizerRule::cuda_symbol. Throws
// Error.
using CudaUpdate = void(const UpdateSpan& span, int device);

}  // namespace sluice
