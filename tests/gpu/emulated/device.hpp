// What a source of kernels finds when the C++ compiler compiles it for the emulated GPU: the names
// of CUDA's device code. Included before the source's own text (CMakeLists.txt).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "tests/gpu/emulated/block.hpp"
#include "tests/gpu/emulated/launch.hpp"

#define threadIdx (::emulated_gpu::running_block().place().thread)
#define blockIdx (::emulated_gpu::running_block().place().block)
#define blockDim (::emulated_gpu::running_block().place().block_dim)
#define gridDim (::emulated_gpu::running_block().place().grid_dim)

// launches.py rewrites declarations of shared memory. One that it missed does not compile.
#undef __shared__
#define __launch_bounds__(...)  // NOLINT(bugprone-reserved-identifier): CUDA's name

namespace emulated_gpu {

// The variable of a block that a declaration stands for. `tag` is of a type of its own.
template <class T, class Tag>
T& shared(Tag) {
  static_assert(alignof(T) <= alignof(std::max_align_t));
  static const char variable = 0;
  return *static_cast<T*>(running_block().shared(&variable, sizeof(T)));
}

template <class T>
T meet(const Site& site, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  const LaneWords& words = running_block().meet_warp(site, word);
  std::memcpy(&value, &words[source], sizeof value);
  return value;
}

// The calling thread's lane in its warp.
inline unsigned lane() {
  const Place& at = running_block().place();
  return (at.thread.x + at.block_dim.x * (at.thread.y + at.block_dim.y * at.thread.z)) % kWarpLanes;
}

}  // namespace emulated_gpu

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names. An operation of a warp takes all lanes,
// whatever its mask.
// clang-format off
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline std::uint32_t __float_as_uint(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
// clang-format on

inline void __syncthreads(std::source_location at = std::source_location::current()) {
  emulated_gpu::running_block().meet_block({"__syncthreads", at});
}
inline void __syncwarp(std::source_location at = std::source_location::current()) {
  (void)emulated_gpu::running_block().meet_warp({"__syncwarp", at}, 0);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int lanes,
                  std::source_location at = std::source_location::current()) {
  return emulated_gpu::meet({"__shfl_xor_sync", at}, value,
                            emulated_gpu::lane() ^ static_cast<unsigned>(lanes));
}
template <class T>
T __shfl_sync(unsigned, T value, int lane,
              std::source_location at = std::source_location::current()) {
  return emulated_gpu::meet({"__shfl_sync", at}, value, static_cast<unsigned>(lane));
}
// A lane whose source is beyond the warp keeps its own value.
template <class T>
T __shfl_down_sync(unsigned, T value, int lanes,
                   std::source_location at = std::source_location::current()) {
  const unsigned own = emulated_gpu::lane(), source = own + static_cast<unsigned>(lanes);
  return emulated_gpu::meet({"__shfl_down_sync", at}, value,
                            source < emulated_gpu::kWarpLanes ? source : own);
}
inline std::uint32_t __reduce_max_sync(unsigned, std::uint32_t value,
                                       std::source_location at = std::source_location::current()) {
  const auto& words = emulated_gpu::running_block().meet_warp({"__reduce_max_sync", at}, value);
  return static_cast<std::uint32_t>(*std::max_element(words.begin(), words.end()));
}
inline std::uint32_t __reduce_add_sync(unsigned, std::uint32_t value,
                                       std::source_location at = std::source_location::current()) {
  const auto& words = emulated_gpu::running_block().meet_warp({"__reduce_add_sync", at}, value);
  std::uint32_t sum = 0;
  for (const std::uint64_t word : words) sum += static_cast<std::uint32_t>(word);
  return sum;
}
// NOLINTEND(bugprone-reserved-identifier)
