#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/entropy_body.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) entropy_kernel(EntropyArgs a) {
  const std::int64_t row = warp_row();
  if (row < a.rows) entropy_body<T>(a, row, Warp{});
}

__global__ void __launch_bounds__(kThreads)
    entropy_parts_kernel(EntropyArgs a, EntropyPart* parts) {
  const std::int64_t row = warp_row();
  if (row < a.rows) entropy_part_body(a, row, Warp{}, parts);
}

}  // namespace

void launch_entropy(const EntropyArgs& a, StreamRef stream) {
  if (a.rows <= 0) return;
  check_argument(packs_aligned(a.row_stride * size_of(DType::kFloat32), {a.logits}),
                 "cross entropy on a GPU needs logits on multiples of 16 bytes");
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    entropy_kernel<T><<<warp_blocks(a.rows), kThreads, 0, native(stream)>>>(a);
  });
  check_launch("cross entropy");
}

void launch_entropy_parts(const EntropyArgs& a, EntropyPart* parts, StreamRef stream) {
  if (a.rows <= 0) return;
  check_argument(packs_aligned(a.row_stride * size_of(DType::kFloat32), {a.logits}),
                 "cross entropy on a GPU needs logits on multiples of 16 bytes");
  entropy_parts_kernel<<<warp_blocks(a.rows), kThreads, 0, native(stream)>>>(a, parts);
  check_launch("cross entropy of a slice");
}

}  // namespace sluice::cuda
