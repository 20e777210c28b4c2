// One warp handles one row. On the device each function runs the thread's own lane. On the host it
// runs all 32 lanes in turn. A lane's variable therefore cannot pass from one call to the next;
// OfLanes keeps a value for each lane.
//
//   reduce(f, merge)          merges f(lane), pairs of floats, over all lanes in butterfly order:
//                             lane l with l ^ 16, then l ^ 8, ... All lanes get the result.
//                             REQUIRES: merge(a, b) and merge(b, a) have equal bits.
//   sum(f)                    reduce with addition
//   each(f)                   calls f(lane)
//   each_largest(to, row, f)  the same; writes the largest integer that f returns to to[row],
//                             unless `to` is null
//   values(f)                 returns v; v[lane] is f of that lane, for every lane
//   count(counts, f)          adds up over all lanes the numbers that f adds to counts. REQUIRES:
//                             counts are 0 before the call.
//
// All 32 lanes must take part in reduce, sum, each_largest, values, v[lane] and count.
#pragma once

#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

inline constexpr int kWarp = 32;

struct Two {
  float a = 0;
  float b = 0;
};

struct AddTwo {
  SLUICE_BODY Two operator()(const Two& x, const Two& y) const { return {x.a + y.a, x.b + y.b}; }
};

#ifdef SLUICE_DEVICE_CODE

// One value for each lane that runs on this thread. Not initialised.
template <class Value>
struct OfLanes {
  __device__ __forceinline__ Value& of(int) { return own; }
  __device__ __forceinline__ const Value& of(int) const { return own; }
  Value own;
};

template <class T>
struct LaneValues {
  T own;
  __device__ __forceinline__ T operator[](int lane) const {
    return __shfl_sync(0xffffffffU, own, lane);
  }
};

struct Warp {
  template <class Fn>
  __device__ __forceinline__ void each(Fn f) const {
    f(static_cast<int>(threadIdx.x % kWarp));
  }
  template <class Fn>
  __device__ __forceinline__ void each_largest(std::uint32_t* to, std::int64_t row, Fn f) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    const std::uint32_t own = f(lane);
    if (to == nullptr) return;
    const std::uint32_t most = __reduce_max_sync(0xffffffffU, own);
    if (lane == 0) to[row] = most;
  }
  template <class Fn>
  __device__ __forceinline__ auto values(Fn f) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    return LaneValues<decltype(f(lane))>{f(lane)};
  }
  template <std::size_t kCount, class Fn>
  __device__ __forceinline__ void count(std::uint32_t (&counts)[kCount], Fn f) const {
    f(static_cast<int>(threadIdx.x % kWarp), counts);
    for (std::uint32_t& each : counts) each = __reduce_add_sync(0xffffffffU, each);
  }
  template <class Fn>
  __device__ __forceinline__ Two sum(Fn f) const {
    return reduce(f, AddTwo{});
  }
  template <class Fn, class Merge>
  __device__ __forceinline__ auto reduce(Fn f, Merge merge) const {
    auto value = f(static_cast<int>(threadIdx.x % kWarp));
    for (int other = kWarp / 2; other > 0; other /= 2) {
      const auto [a, b] = value;
      value = merge(
          value, {__shfl_xor_sync(0xffffffffU, a, other), __shfl_xor_sync(0xffffffffU, b, other)});
    }
    return value;
  }
};

#else

template <class Value>
struct OfLanes {
  Value& of(int lane) { return all[lane]; }
  [[nodiscard]] const Value& of(int lane) const { return all[lane]; }
  Value all[kWarp];
};

template <class T>
struct LaneValues {
  T of[kWarp];
  T operator[](int lane) const { return of[lane]; }
};

struct Warp {
  template <class Fn>
  void each(Fn f) const {
    for (int lane = 0; lane < kWarp; ++lane) f(lane);
  }
  template <class Fn>
  void each_largest(std::uint32_t* to, std::int64_t row, Fn f) const {
    std::uint32_t most = 0;
    for (int lane = 0; lane < kWarp; ++lane) most = larger(most, f(lane));
    if (to != nullptr) to[row] = most;
  }
  template <class Fn>
  [[nodiscard]] auto values(Fn f) const {
    LaneValues<decltype(f(0))> values;
    for (int lane = 0; lane < kWarp; ++lane) values.of[lane] = f(lane);
    return values;
  }
  template <std::size_t kCount, class Fn>
  void count(std::uint32_t (&counts)[kCount], Fn f) const {
    for (int lane = 0; lane < kWarp; ++lane) f(lane, counts);
  }
  template <class Fn>
  [[nodiscard]] Two sum(Fn f) const {
    return reduce(f, AddTwo{});
  }
  template <class Fn, class Merge>
  [[nodiscard]] auto reduce(Fn f, Merge merge) const {
    decltype(f(0)) values[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) values[lane] = f(lane);
    for (int other = kWarp / 2; other > 0; other /= 2) {
      decltype(f(0)) next[kWarp];
      for (int lane = 0; lane < kWarp; ++lane) {
        next[lane] = merge(values[lane], values[lane ^ other]);
      }
      for (int lane = 0; lane < kWarp; ++lane) values[lane] = next[lane];
    }
    return values[0];
  }
};

#endif

}  // namespace sluice::cuda
