// Grids of the bodies: packs of a row over threads, or one warp a row.
#pragma once

#include <initializer_list>

#include "kernels/cuda/device_types.cuh"
#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

// True if 16 bytes can be read at any pack of these buffers; null buffers are not read.
inline bool packs_aligned(std::int64_t row_bytes, std::initializer_list<const void*> buffers) {
  for (const void* buffer : buffers) {
    if (reinterpret_cast<std::uintptr_t>(buffer) % 16 != 0) return false;
  }
  return row_bytes % 16 == 0;
}

struct Grid {
  dim3 blocks;
  unsigned threads;
};

inline std::int64_t packs_of(std::int64_t elems, DType dtype) {
  const std::int64_t pack = 16 / size_of(dtype);
  return (elems + pack - 1) / pack;
}

// Kernels leave largest magnitudes of whole packs of bf16.
inline void check_maxima(std::int64_t columns, DType dtype, bool aligned) {
  check_argument(
      aligned && dtype == DType::kBFloat16 && packs_of(columns, dtype) * 8 == columns,
      "rows whose largest magnitudes are wanted are bf16 in whole multiples of 16 bytes");
}

// Block (r, c): row r, and the c-th run of the packs of a row.
inline Grid row_grid(std::int64_t rows, std::int64_t packs) {
  constexpr std::int64_t kMostBlocks = 65535;  // along y
  const std::int64_t whole_warps = (packs + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
  const std::int64_t threads = whole_warps < kThreads ? whole_warps : kThreads;
  const std::int64_t runs = (packs + threads - 1) / threads;
  return {dim3(static_cast<unsigned>(rows),
               static_cast<unsigned>(runs < kMostBlocks ? runs : kMostBlocks)),
          static_cast<unsigned>(threads)};
}

// One block a row.
inline Grid block_grid(std::int64_t rows, std::int64_t packs) {
  const Grid grid = row_grid(rows, packs);
  return {dim3(grid.blocks.x), grid.threads};
}

__device__ __forceinline__ Worker row_worker() {
  return {static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x,
          static_cast<std::int64_t>(gridDim.y) * blockDim.x};
}

// The largest value of the block's threads, for all of them. Blocks are whole warps; `warps` is
// shared memory.
using BlockWarps = std::uint32_t[kThreads / kWarpThreads];
__device__ inline std::uint32_t block_max(std::uint32_t value, BlockWarps& warps) {
  value = __reduce_max_sync(0xffffffffU, value);
  if (threadIdx.x % kWarpThreads == 0) warps[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  std::uint32_t most = 0;
  for (unsigned i = 0; i < blockDim.x / kWarpThreads; ++i) most = larger(most, warps[i]);
  return most;
}

// One warp a row.
inline unsigned warp_blocks(std::int64_t rows) {
  constexpr std::int64_t kRows = kThreads / kWarpThreads;
  return static_cast<unsigned>((rows + kRows - 1) / kRows);
}

__device__ __forceinline__ std::int64_t warp_row() { return first_index() / kWarpThreads; }

}  // namespace sluice::cuda
