// A thread block that handles one row, with the functions of Warp (warp.hpp) for all its threads,
// whose numbers f gets. A block is whole warps. `reduce` merges the lanes of each warp, then the
// warps, both in the order of a butterfly; a value by default changes nothing that it is merged
// with. A kernel calls it once for its `warps`. `each_after` calls f before other threads' g only
// where it `waits`.
#pragma once

#include "kernels/cuda/warp.hpp"

namespace sluice::cuda {

inline constexpr int kTeamThreads = 1024;  // at most

// A pair of floats of each warp; in the block's shared memory on the device.
using TeamWarps = float[2][kTeamThreads / kWarp];

#ifdef SLUICE_DEVICE_CODE

struct Team {
  TeamWarps& warps;

  [[nodiscard]] __device__ __forceinline__ int threads() const {
    return static_cast<int>(blockDim.x);
  }
  template <class Fn>
  __device__ __forceinline__ void each(Fn f) const {
    f(static_cast<int>(threadIdx.x));
  }
  template <class Fn, class After>
  __device__ __forceinline__ void each_after(bool waits, Fn f, After g) const {
    const int thread = static_cast<int>(threadIdx.x);
    const auto value = f(thread);
    if (waits) __syncthreads();
    g(thread, value);
  }
  template <class Fn, class Merge>
  __device__ __forceinline__ auto reduce(Fn f, Merge merge) const {
    const int thread = static_cast<int>(threadIdx.x);
    const auto own = Warp{}.reduce([&](int) { return f(thread); }, merge);
    const auto [a, b] = own;
    if (thread % kWarp == 0) {
      warps[0][thread / kWarp] = a;
      warps[1][thread / kWarp] = b;
    }
    __syncthreads();
    return Warp{}.reduce(
        [&](int lane) {
          using Value = decltype(f(0));
          return lane < threads() / kWarp ? Value{warps[0][lane], warps[1][lane]} : Value{};
        },
        merge);
  }
};

#else

struct Team {
  int count;

  [[nodiscard]] int threads() const { return count; }
  template <class Fn>
  void each(Fn f) const {
    for (int thread = 0; thread < count; ++thread) f(thread);
  }
  template <class Fn, class After>
  void each_after(bool waits, Fn f, After g) const {
    decltype(f(0)) values[kTeamThreads];
    for (int thread = 0; thread < count; ++thread) {
      values[thread] = f(thread);
      if (!waits) g(thread, values[thread]);
    }
    for (int thread = 0; waits && thread < count; ++thread) g(thread, values[thread]);
  }
  template <class Fn, class Merge>
  [[nodiscard]] auto reduce(Fn f, Merge merge) const {
    decltype(f(0)) warps[kWarp];
    for (int warp = 0; warp < count / kWarp; ++warp) {
      warps[warp] = Warp{}.reduce([&](int lane) { return f(warp * kWarp + lane); }, merge);
    }
    return Warp{}.reduce([&](int lane) { return warps[lane]; }, merge);
  }
};

#endif

}  // namespace sluice::cuda
