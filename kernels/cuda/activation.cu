#include "kernels/cuda/activation_body.hpp"
#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

template <class T>
__global__ void gelu_kernel(GeluArgs a, bool aligned) {
  gelu_body<T>(a, {first_index(), index_stride()}, aligned);
}

template <class T>
__global__ void swiglu_kernel(SwigluArgs a, bool aligned) {
  swiglu_body<T>(a, blockIdx.x, row_worker(), aligned);
}

}  // namespace

void launch_gelu(const GeluArgs& a, StreamRef stream) {
  if (a.n <= 0) return;
  const bool aligned = packs_aligned(0, {a.y, a.x, a.dy});
  const auto blocks = static_cast<unsigned>((packs_of(a.n, a.dtype) + kThreads - 1) / kThreads);
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    gelu_kernel<T><<<blocks, kThreads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("gelu");
}

void launch_swiglu(const SwigluArgs& a, StreamRef stream) {
  if (a.rows <= 0 || a.width <= 0) return;
  const bool aligned = packs_aligned(a.width * size_of(a.dtype), {a.y, a.gate_up, a.dy});
  const Grid grid = row_grid(a.rows, packs_of(a.width, a.dtype));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    swiglu_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("swiglu");
}

}  // namespace sluice::cuda
