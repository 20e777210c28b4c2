// A warp that handles one row. `sum` adds what f(lane) returns over all 32 lanes, in the order of a
// butterfly: lane l adds lane l ^ 16, then l ^ 8, ... Every lane gets the same bits. `each` calls
// f(lane) for the lanes that run here: the thread's own on the device, all in turn on the host. So
// no variable but a sum's result passes between calls.
#pragma once

#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

inline constexpr int kWarp = 32;

struct Two {
  float a = 0;
  float b = 0;
};

#ifdef __CUDACC__

struct Warp {
  template <class Fn>
  __device__ __forceinline__ void each(Fn f) const {
    f(static_cast<int>(threadIdx.x % kWarp));
  }
  template <class Fn>
  __device__ __forceinline__ Two sum(Fn f) const {
    Two value = f(static_cast<int>(threadIdx.x % kWarp));
    for (int other = kWarp / 2; other > 0; other /= 2) {
      value.a += __shfl_xor_sync(0xffffffffU, value.a, other);
      value.b += __shfl_xor_sync(0xffffffffU, value.b, other);
    }
    return value;
  }
};

#else

struct Warp {
  template <class Fn>
  void each(Fn f) const {
    for (int lane = 0; lane < kWarp; ++lane) f(lane);
  }
  template <class Fn>
  [[nodiscard]] Two sum(Fn f) const {
    Two values[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) values[lane] = f(lane);
    for (int other = kWarp / 2; other > 0; other /= 2) {
      Two next[kWarp];
      for (int lane = 0; lane < kWarp; ++lane) {
        next[lane] = {values[lane].a + values[lane ^ other].a,
                      values[lane].b + values[lane ^ other].b};
      }
      for (int lane = 0; lane < kWarp; ++lane) values[lane] = next[lane];
    }
    return values[0];
  }
};

#endif

}  // namespace sluice::cuda
