#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/branch_body.hpp"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/rope_body.hpp"

namespace sluice::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) branch_kernel(BranchArgs a, bool aligned) {
  branch_body<T>(a, blockIdx.x, row_worker(), aligned);
}

template <class T>
__global__ void __launch_bounds__(kThreads) rope_kernel(RopeTokens tokens, bool aligned) {
  rope_body<T>(tokens, blockIdx.x, row_worker(), aligned);
}

}  // namespace

void launch_branch(const BranchArgs& a, StreamRef stream) {
  if (a.rows <= 0 || a.columns <= 0) return;
  const bool aligned =
      packs_aligned(a.columns * size_of(a.dtype), {a.out, a.x, a.bias, a.residual});
  const Grid grid = row_grid(a.rows, packs_of(a.columns, a.dtype));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    branch_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("branch");
}

void launch_rope(const RopeTokens& tokens, StreamRef stream) {
  const RopeArgs& a = tokens.at;
  if (a.rows <= 0 || a.heads <= 0) return;
  const bool aligned = packs_aligned(a.head_dim / 2 * size_of(a.dtype), {a.x}) &&
                       a.stride * size_of(a.dtype) % 16 == 0;
  const Grid grid = row_grid(a.rows, a.heads * packs_of(a.head_dim / 2, a.dtype));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    rope_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(tokens, aligned);
  });
  check_launch("rope");
}

}  // namespace sluice::cuda
