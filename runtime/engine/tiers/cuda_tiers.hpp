// Exports of the CUDA module for memory tiers and device updates. Names are C, types are C++,
// because both sides come from one build.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace sluice {

class DeviceCopies;
class DeviceEvents;
class DeviceGraphs;
class DeviceNorm;
class PageSource;
struct UpdateSpan;
namespace cuda {
struct SquaresSpan;
struct StepClip;
}  // namespace cuda

// Copies to and from GPU `device`, on separate streams. Throws Error.
using MakeCudaCopies = DeviceCopies*(int device);
inline constexpr char kMakeCudaCopies[] = "sluice_make_cuda_copies";

// Graphs of GPU `device`, recorded from the calling thread's stream. Throws Error.
using MakeCudaGraphs = DeviceGraphs*(int device);
inline constexpr char kMakeCudaGraphs[] = "sluice_make_cuda_graphs";

// Events with times on GPU `device`.
using MakeCudaEvents = DeviceEvents*(int device);
inline constexpr char kMakeCudaEvents[] = "sluice_make_cuda_events";

// The pages of `pages`, registered for DMA with every GPU. If the driver refuses, map() throws
// BudgetError with the bytes and the memlock limit.
using MakeCudaPages = PageSource*(const std::shared_ptr<PageSource>& pages);
inline constexpr char kMakeCudaPages[] = "sluice_make_cuda_pages";

// Makes GPU `device` the calling thread's current device, with a stream of its own.
// Throws Error.
using UseGpu = void(int device);
inline constexpr char kUseGpu[] = "sluice_use_gpu";

// Limits libtorch's allocator on GPU `device` to `share` of the card's memory. Throws Error.
using LimitGpuMemory = void(int device, double share);
inline constexpr char kLimitGpuMemory[] = "sluice_limit_gpu_memory";

// Name of GPU `device`, from the driver. Throws Error.
using GpuName = void(int device, std::string& name);
inline constexpr char kGpuName[] = "sluice_gpu_name";

// Enqueues an optimizer's updates of memory of GPU `device` on the calling thread's current stream,
// in few launches. OptimizerRule::cuda_symbol names the function of each optimizer. `clip`: as
// launch_adamw(). Throws Error.
using CudaUpdate = void(std::span<const UpdateSpan> spans, int device, const cuda::StepClip* clip);

// The norm of gradients on GPU `device`, with room for the sums of spans of these sizes. Throws
// Error.
using MakeCudaNorm = DeviceNorm*(int device, std::span<const cuda::SquaresSpan> sizes);
inline constexpr char kMakeCudaNorm[] = "sluice_make_cuda_norm";

}  // namespace sluice
