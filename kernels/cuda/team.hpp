// One thread block of whole warps handles one row.
//
//   each(f)                  as Warp's (warp.hpp); f gets the thread's number, here and below
//   reduce(f, merge)         as Warp's: merges the lanes of each warp, then the warps. REQUIRES:
//                            Value{} changes nothing that it is merged with; a kernel calls reduce
//                            once for its `warps`.
//   each_after(waits, f, g)  calls g(thread, f(thread)); with `waits`, all threads have called f
//                            before any thread calls g
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
