#include "kernels/cuda/attention_body.hpp"
#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

// Block (c, t): packs of tensor t.
template <class T>
__global__ void __launch_bounds__(kThreads) copy_heads_kernel(HeadCopy a, bool back, bool aligned) {
  const HeadRows& of = a.of[blockIdx.y];
  const std::int64_t packs = head_packs<T>(a, of);
  for (std::int64_t i = first_index(); i < packs; i += index_stride()) {
    copy_heads_body<T>(a, of, i, back, aligned);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) score_weights_kernel(AttentionScores a) {
  const std::int64_t row = warp_row();
  if (row < a.chunk.heads * a.queries * a.group) score_weights_body<T>(a, row, Warp{});
}

template <class T>
__global__ void __launch_bounds__(kThreads) score_gradients_kernel(AttentionScores a) {
  const std::int64_t row = warp_row();
  if (row < a.chunk.heads * a.queries * a.group) score_gradients_body<T>(a, row, Warp{});
}

}  // namespace

void launch_copy_heads(const HeadCopy& a, bool back, StreamRef stream) {
  std::int64_t most = 0;
  bool aligned = true;
  for (int i = 0; i < a.count; ++i) {
    const HeadRows& of = a.of[i];
    const std::int64_t lines = a.chunk.heads * of.rows * of.group;
    const std::int64_t packs = lines * packs_of(a.width, a.dtype);
    most = packs > most ? packs : most;
    aligned = aligned && packs_aligned(a.head_dim * size_of(a.dtype), {of.tokens}) &&
              packs_aligned(of.token_stride * size_of(a.dtype), {}) &&
              packs_aligned(of.sample_stride * size_of(a.dtype), {});
    check_argument(packs_aligned(a.width * size_of(a.dtype), {of.packed}),
                   "packed heads lie on multiples of 16 bytes");
  }
  if (most <= 0) return;
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    copy_heads_kernel<T>
        <<<dim3(blocks_for(most), static_cast<unsigned>(a.count)), kThreads, 0, native(stream)>>>(
            a, back, aligned);
  });
  check_launch("copy of heads");
}

void launch_attention_scores(const AttentionScores& a, StreamRef stream) {
  const std::int64_t rows = a.chunk.heads * a.queries * a.group;
  if (rows <= 0) return;
  check_argument(packs_aligned(a.keys * 2, {a.scores, a.weights, a.grad, a.score_grad}),
                 "scores of attention lie on multiples of 16 bytes, in rows of 8");
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    if (a.grad == nullptr) {
      score_weights_kernel<T><<<warp_blocks(rows), kThreads, 0, native(stream)>>>(a);
    } else {
      score_gradients_kernel<T><<<warp_blocks(rows), kThreads, 0, native(stream)>>>(a);
    }
  });
  check_launch("attention scores");
}

}  // namespace sluice::cuda
