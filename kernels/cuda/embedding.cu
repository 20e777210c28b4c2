#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/embedding_body.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

__global__ void token_order_kernel(TokenRows at, std::int32_t* order) {
  const std::int64_t token = first_index();
  if (token < at.tokens) order[place_of_token(at, token)] = static_cast<std::int32_t>(token);
}

template <class T>
__global__ void __launch_bounds__(kThreads) token_lookup_kernel(TokenLookup a, bool aligned) {
  token_lookup_body<T>(a, blockIdx.x, row_worker(), aligned);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_gradient_kernel(EmbeddingGradient a, bool aligned) {
  embedding_row_body<T>(a, blockIdx.x, row_worker(), aligned);
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
  check_argument(a.at.tokens <= 0x7fffffff, "an embedding's gradient takes up to 2^31 - 1 tokens");
  constexpr unsigned kTokens = 64;  // a thread block; few, so that the tokens spread over the GPU
  const auto blocks = static_cast<unsigned>((a.at.tokens + kTokens - 1) / kTokens);
  token_order_kernel<<<blocks, kTokens, 0, native(stream)>>>(a.at, a.order);
  check_launch("order of tokens");
  const bool aligned = packs_aligned(a.hidden * size_of(a.dtype), {a.grad, a.dy});
  const Grid grid = row_grid(a.at.tokens, packs_of(a.hidden, a.dtype));
  with_device_dtype(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    embedding_gradient_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
  check_launch("embedding gradient");
}

}  // namespace sluice::cuda
