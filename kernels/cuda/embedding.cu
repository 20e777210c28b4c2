#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/embedding_body.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) token_lookup_kernel(TokenLookup a, bool aligned) {
  token_lookup_body<T>(a, blockIdx.x, row_worker(), aligned);
}

template <class T>
__global__ void __launch_bounds__(kThreads) token_gradient_kernel(TokenGradient a, bool aligned) {
  token_gradient_body<T>(a, blockIdx.x, row_worker(), aligned);
}

// launch(grid, null pointer of the element type) for a row of threads a token.
template <class Launch>
void for_tokens(const TokenSlice& at, const char* kernel, Launch launch) {
  if (at.count <= 0) return;
  const Grid grid = row_grid(at.count, packs_of(at.hidden, at.dtype));
  with_device_dtype(at.dtype, [&](auto* tag) { launch(grid, tag); });
  check_launch(kernel);
}

}  // namespace

void launch_token_lookup(const TokenLookup& a, StreamRef stream) {
  const bool aligned = packs_aligned(a.at.hidden * size_of(a.at.dtype), {a.out, a.table});
  for_tokens(a.at, "lookup of tokens", [&](const Grid& grid, auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    token_lookup_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
}

void launch_token_gradient(const TokenGradient& a, StreamRef stream) {
  const bool aligned = packs_aligned(a.at.hidden * size_of(a.at.dtype), {a.grad, a.dy});
  for_tokens(a.at, "gradient of tokens", [&](const Grid& grid, auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    token_gradient_kernel<T><<<grid.blocks, grid.threads, 0, native(stream)>>>(a, aligned);
  });
}

}  // namespace sluice::cuda
