// The two forms of fp32 master weights that an update reads and writes, four neighbours at once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_types.cuh"

namespace sluice::cuda {

inline constexpr int kFour = 4;

template <class T>
__device__ __forceinline__ void load_four(const T* from, float (&to)[kFour]) {
  Quad<T> raw;
  load_quad(from, &raw);
  for (int j = 0; j < kFour; ++j) to[j] = widen(raw.v[j]);
}

template <class T>
__device__ __forceinline__ void store_four(const float (&from)[kFour], T* to) {
  Quad<T> raw;
  for (int j = 0; j < kFour; ++j) narrow(from[j], &raw.v[j]);
  store_quad(raw, to);
}

template <class T>
__device__ __forceinline__ bool takes_four(const T* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Quad<T>) == 0;
}

// As kernels/cpu/update/update_span.hpp: no master weight lies between two bf16 values.
__device__ __forceinline__ float leave_tie(float master) {
  const std::uint32_t bits = bits_of(master);
  return from_bits(bits - ((bits & 0x1ffffU) == 0x8000U ? 1U : 0U));
}

// fp32 master weights, and weights in W or none.
template <class W>
struct WholeMaster {
  float* master;
  W* out;  // or null

  __device__ WholeMaster(void* kept, void* weights)
      : master(static_cast<float*>(kept)), out(static_cast<W*>(weights)) {}

  __device__ bool takes_four() const { return cuda::takes_four(master) && cuda::takes_four(out); }
  __device__ float load(std::int64_t i) const { return master[i]; }
  __device__ void load(std::int64_t i, float (&to)[kFour]) const { load_four(master + i, to); }
  __device__ static float rounds_alike(float p) {
    if constexpr (std::is_same_v<W, Bf16>) return leave_tie(p);
    return p;
  }
  __device__ void store(std::int64_t i, float p) const {
    master[i] = p;
    if (out != nullptr) narrow(p, out + i);
  }
  __device__ void store(std::int64_t i, const float (&p)[kFour]) const {
    store_four(p, master + i);
    if (out != nullptr) store_four(p, out + i);
  }
};

// Master weights as bf16 weights and remainders.
struct SplitMaster {
  std::uint16_t* low;
  Bf16* weights;

  __device__ SplitMaster(void* kept, void* weights_out)
      : low(static_cast<std::uint16_t*>(kept)), weights(static_cast<Bf16*>(weights_out)) {}

  __device__ bool takes_four() const { return cuda::takes_four(low) && cuda::takes_four(weights); }
  __device__ static float join(float high, std::uint16_t remainder) {
    return from_bits(bits_of(high) +
                     static_cast<std::uint32_t>(static_cast<std::int16_t>(remainder)));
  }
  __device__ static std::uint16_t remainder_of(float p) {
    return static_cast<std::uint16_t>(bits_of(p));
  }
  __device__ float load(std::int64_t i) const { return join(widen(weights[i]), low[i]); }
  __device__ void load(std::int64_t i, float (&to)[kFour]) const {
    Quad<std::uint16_t> remainders;
    load_quad(low + i, &remainders);
    load_four(weights + i, to);
    for (int j = 0; j < kFour; ++j) to[j] = join(to[j], remainders.v[j]);
  }
  __device__ static float rounds_alike(float p) { return leave_tie(p); }
  __device__ void store(std::int64_t i, float p) const {
    low[i] = remainder_of(p);
    narrow(p, weights + i);
  }
  __device__ void store(std::int64_t i, const float (&p)[kFour]) const {
    Quad<std::uint16_t> remainders;
    for (int j = 0; j < kFour; ++j) remainders.v[j] = remainder_of(p[j]);
    store_quad(remainders, low + i);
    store_four(p, weights + i);
  }
};

}  // namespace sluice::cuda
