#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/embedding_body.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

// Few warps a block, so that they spread over the GPU.
constexpr unsigned kWarps = 4, kWarpsThreads = kWarps * kWarpThreads;

unsigned blocks_of_warps(std::int64_t warps) {
  return static_cast<unsigned>((warps + kWarps - 1) / kWarps);
}

__global__ void __launch_bounds__(kWarpsThreads)
    token_order_kernel(TokenRows at, std::int32_t* order) {
  token_order_body(at, warp_row() * kPlaced, Warp{}, order);
}

template <class T>
__global__ void __launch_bounds__(kThreads) token_lookup_kernel(TokenLookup a, bool aligned) {
  token_lookup_body<T>(a, blockIdx.x, row_worker(), aligned);
}

template <class T>
__global__ void __launch_bounds__(kWarpsThreads, 3)
    embedding_gradient_kernel(EmbeddingGradient a, bool aligned) {
  const std::int64_t first = warp_row() * kRowPlaces;
  if (aligned) {
    embedding_rows_body<T, true>(a, first, blockIdx.y, Warp{});
  } else {
    embedding_rows_body<T, false>(a, first, blockIdx.y, Warp{});
  }
}

}  // namespace

void launch_token_lookup(const TokenLookup& a, StreamRef stream) {
  if (a.count <= 0 || a.hidden <= 0) return;
  const bool aligned = packs_aligned(a.hidden * size_of(a.dtype), {a.out, a.table});
  const Grid grid = row_grid(a.count, packs_of(a.hidden, a.dtype));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    token_lookup_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("lookup of tokens");
}

void launch_embedding_gradient(const EmbeddingGradient& a, StreamRef stream) {
  if (a.at.tokens <= 0 || a.hidden <= 0) return;
  check_argument(a.at.tokens <= 0x7fffffff && a.at.period <= 0x7fffffff,
                 "an embedding's gradient takes up to 2^31 - 1 tokens");
  check_argument(a.hidden <= 1 << 22, "an embedding's gradient takes up to 2^22 columns");
  const unsigned placed = blocks_of_warps((a.at.tokens + kPlaced - 1) / kPlaced);
  token_order_kernel<<<placed, kWarpsThreads, 0, native(stream)>>>(a.at, a.order);
  check_launch("order of tokens");
  const bool aligned = packs_aligned(a.hidden * size_of(a.dtype), {a.grad, a.dy});
  const dim3 blocks(blocks_of_warps((a.at.tokens + kRowPlaces - 1) / kRowPlaces),
                    static_cast<unsigned>((a.hidden + kRunColumns - 1) / kRunColumns));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    embedding_gradient_kernel<T><<<blocks, kWarpsThreads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("embedding gradient");
}

}  // namespace sluice::cuda
