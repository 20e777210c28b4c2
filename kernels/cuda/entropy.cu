#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/entropy_body.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kTeamThreads) entropy_kernel(EntropyArgs a) {
  __shared__ TeamWarps warps;
  entropy_body<T>(a, blockIdx.x, Team{warps});
}

__global__ void __launch_bounds__(kTeamThreads)
    entropy_parts_kernel(EntropyArgs a, EntropyPart* parts) {
  __shared__ TeamWarps warps;
  entropy_part_body(a, blockIdx.x, Team{warps}, parts);
}

Grid entropy_grid(const EntropyArgs& a) {
  check_argument(packs_aligned(a.row_stride * size_of(DType::kFloat32), {a.logits}),
                 "cross entropy on a GPU needs logits on multiples of 16 bytes");
  check_argument(a.vocab <= kMostColumns, "cross entropy on a GPU takes up to 2^30 words");
  return {dim3(static_cast<unsigned>(a.rows)), static_cast<unsigned>(entropy_threads(a.vocab))};
}

}  // namespace

void launch_entropy(const EntropyArgs& a, StreamRef stream) {
  if (a.rows <= 0) return;
  const Grid grid = entropy_grid(a);
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    entropy_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a);
  });
  check_launch("cross entropy");
}

void launch_entropy_parts(const EntropyArgs& a, EntropyPart* parts, StreamRef stream) {
  if (a.rows <= 0) return;
  const Grid grid = entropy_grid(a);
  entropy_parts_kernel<<<grid.blocks, grid.threads, 0, native(stream)>>>(a, parts);
  check_launch("cross entropy of a slice");
}

}  // namespace sluice::cuda
