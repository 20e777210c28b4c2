// Dry runs of a GPU. Code with a separate path for GPUs asks takes_gpu_path(), so that a dry run on
// the meta device takes the path of the run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice {

struct ModelOptions;

// While an object lives and `stands` is true, meta tensors of this thread stand for tensors of a
// GPU: takes_gpu_path() is true for them, and they count as blocks of the CUDA caching allocator
// (counting_allocator.hpp).
class MetaStandsForGpu {
 public:
  explicit MetaStandsForGpu(bool stands);
  ~MetaStandsForGpu();
  MetaStandsForGpu(const MetaStandsForGpu&) = delete;
  MetaStandsForGpu& operator=(const MetaStandsForGpu&) = delete;

 private:
  const bool before_;
};

[[nodiscard]] bool meta_stands_for_gpu();

// `x` is on a GPU, or is a meta tensor that stands for one.
[[nodiscard]] bool takes_gpu_path(const at::Tensor& x);

// Bytes that libtorch's CUDA caching allocator takes for an allocation of `bytes`, by the rules of
// c10/core/AllocatorConfig.h. Sizes are rounded up to 512 bytes (kMinBlockSize). Blocks up to 1 MiB
// (kSmallCudaBlock) lie in segments of 2 MiB (kSmallBuffer), and each counts as its share of a
// segment with as many such blocks as fit. From 10 MiB on (kMinLargeAlloc) a block has a segment of
// its own, a multiple of 2 MiB (kRoundLarge). A rest above 1 MiB of such a segment is split off,
// but only smaller tensors fit in: the rest counts as taken.
[[nodiscard]] std::int64_t cuda_block_bytes(std::int64_t bytes);
// Blocks up to this size come from segments of 2 MiB for small ones alone (kSmallSize).
inline constexpr std::int64_t kSmallCudaBlock = std::int64_t{1} << 20;

// Room for the holes that some tensors leave among a step's tensors, because they are allocated and
// freed in another order: messages between pipeline stages, which come to life a slot early or die
// a slot late, and passing gradients (passing_gradients.hpp). `bytes`: of the largest such tensor.
// The room is two of them. A step then reserves at most 3 % above its plan, with messages 1 %
// (tests/gpu/ceilings.json).
[[nodiscard]] std::int64_t cuda_gap_bytes(std::int64_t bytes);

// Bytes that libtorch takes of the device beside a step's tensors: cuBLAS's workspace for each
// thread that multiplies, the engine's and, with units of autograd, that of libtorch's autograd
// (at::cuda::getChosenWorkspaceSize()); rests of segments, into which no tensor fits.
[[nodiscard]] std::int64_t device_library_bytes(const ModelOptions& options);

}  // namespace sluice
