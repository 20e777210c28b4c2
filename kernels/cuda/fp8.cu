#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/fp8_body.hpp"
#include "kernels/cuda/grid.cuh"

namespace sluice::cuda {
namespace {

static_assert(Fp8Tile::kThreads == kThreads);

__device__ __forceinline__ Worker own_block() { return {blockIdx.x, gridDim.x}; }
__device__ __forceinline__ Worker own_thread() { return {threadIdx.x, blockDim.x}; }

__global__ void __launch_bounds__(kThreads)
    fp8_parts_kernel(const __grid_constant__ Fp8Operands operands) {
  __shared__ BlockWarps warps;
  const Fp8Operand& a = operands.of[blockIdx.y];
  const std::uint32_t most = block_max(fp8_parts_body(a, own_block(), own_thread()), warps);
  if (threadIdx.x == 0) a.parts[blockIdx.x] = most;
}

template <class Format>
__device__ void quantise(const Fp8Operand& a, std::uint32_t amax, Fp8Tile* tile) {
  const float scale = fp8::scale_of<Format>(amax);
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.inverse = fp8::inverse_scale_of<Format>(amax);
  if (a.turned == nullptr) return fp8_rows_body<Format>(a, scale, own_block(), own_thread());
  const std::int64_t count = Fp8TilePlace::count(a);
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const Fp8TilePlace at(a, count - 1 - i);
    fp8_tile_load<Format>(a, scale, at, static_cast<int>(threadIdx.x), tile);
    __syncthreads();
    fp8_tile_store(a, at, static_cast<int>(threadIdx.x), tile);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    fp8_quantise_kernel(const __grid_constant__ Fp8Operands operands) {
  static_assert(kFp8Parts == 2 * kThreads, "a thread reads two parts");
  __shared__ BlockWarps warps;
  __shared__ Fp8Tile tile;
  const Fp8Operand& a = operands.of[blockIdx.y];
  const std::uint32_t amax =
      block_max(larger(a.parts[threadIdx.x], a.parts[threadIdx.x + kThreads]), warps);
  if (a.format == Fp8Format::kE4M3) {
    quantise<fp8::E4M3>(a, amax, &tile);
  } else {
    quantise<fp8::E5M2>(a, amax, &tile);
  }
}

void check_operand(const Fp8Operand& a) {
  check_argument(a.columns % kFp8Multiple == 0 &&
                     packs_aligned(a.stride * 2, {a.x, a.codes, a.turned, a.parts}),
                 "an operand of an FP8 product has rows of whole 16 bytes");
}

}  // namespace

void launch_fp8_quantise(const Fp8Operands& operands, StreamRef stream) {
  constexpr std::int64_t kMostBlocks = 528;  // of an operand: 4 for each multiprocessor of an H100
  // A block takes as many codes at a time in either layout.
  constexpr std::int64_t kOfBlock = 2 * std::int64_t{16} * kThreads;
  static_assert(kOfBlock == Fp8Tile::kRows * Fp8Tile::kColumns);
  std::int64_t blocks = 1;
  for (int i = 0; i < operands.count; ++i) {
    const Fp8Operand& a = operands.of[i];
    check_operand(a);
    const std::int64_t wanted = (a.rows * a.columns + kOfBlock - 1) / kOfBlock;
    blocks = wanted > blocks ? wanted : blocks;
  }
  const auto count = static_cast<unsigned>(operands.count);
  fp8_parts_kernel<<<dim3(kFp8Parts, count), kThreads, 0, native(stream)>>>(operands);
  check_launch("largest magnitude");
  const auto x = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  fp8_quantise_kernel<<<dim3(x, count), kThreads, 0, native(stream)>>>(operands);
  check_launch("quantise");
}

}  // namespace sluice::cuda
