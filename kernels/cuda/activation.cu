#include <utility>

#include "kernels/cuda/activation_body.hpp"
#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

template <class T>
__global__ void gelu_kernel(GeluArgs a, bool aligned) {
  gelu_body<T>(a, 0, {first_index(), index_stride()}, aligned);
}

template <class T>
__global__ void swiglu_kernel(SwigluArgs a, bool aligned) {
  swiglu_body<T>(a, blockIdx.x, row_worker(), aligned);
}

// Leaves the largest magnitude of the block's row.
__device__ void leave_maximum(std::uint32_t* row_maxima, const Largest<Bf16>& of_thread,
                              BlockWarps& warps) {
  const std::uint32_t most = block_max(of_thread.stored(), warps);
  if (threadIdx.x == 0) row_maxima[blockIdx.x] = most;
}

__global__ void measured_gelu_kernel(GeluArgs a) {
  __shared__ BlockWarps warps;
  Largest<Bf16> most;
  gelu_body<Bf16>(a, blockIdx.x, row_worker(), true, [&](const auto& pack) { most.add(pack); });
  leave_maximum(a.row_maxima, most, warps);
}

__global__ void measured_swiglu_kernel(SwigluArgs a) {
  __shared__ BlockWarps warps;
  Largest<Bf16> most;
  swiglu_body<Bf16>(a, blockIdx.x, row_worker(), true, [&](const auto& pack) { most.add(pack); });
  leave_maximum(a.row_maxima, most, warps);
}

}  // namespace

void launch_gelu(const GeluArgs& a, StreamRef stream) {
  if (a.rows <= 0 || a.width <= 0) return;
  const bool aligned = packs_aligned(0, {a.y, a.x, a.dy});
  if (a.row_maxima != nullptr) {
    check_maxima(a.width, a.dtype, aligned);
    const Grid grid = block_grid(a.rows, packs_of(a.width, a.dtype));
    measured_gelu_kernel<<<grid.blocks, grid.threads, 0, native(stream)>>>(a);
    return check_launch("gelu");
  }
  GeluArgs all = a;  // as one row
  all.width *= std::exchange(all.rows, 1);
  const auto blocks =
      static_cast<unsigned>((packs_of(all.width, a.dtype) + kThreads - 1) / kThreads);
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    gelu_kernel<T><<<blocks, kThreads, 0, native(stream)>>>(all, aligned);
  });
  check_launch("gelu");
}

void launch_swiglu(const SwigluArgs& a, StreamRef stream) {
  if (a.rows <= 0 || a.width <= 0) return;
  const bool aligned = packs_aligned(a.width * size_of(a.dtype), {a.y, a.gate_up, a.dy});
  if (a.row_maxima != nullptr) {
    check_maxima(a.width, a.dtype, aligned);
    const Grid grid = block_grid(a.rows, packs_of(a.width, a.dtype));
    measured_swiglu_kernel<<<grid.blocks, grid.threads, 0, native(stream)>>>(a);
    return check_launch("swiglu");
  }
  const Grid grid = row_grid(a.rows, packs_of(a.width, a.dtype));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    swiglu_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("swiglu");
}

}  // namespace sluice::cuda
