// Elements of the bodies (*_body.hpp): types, fp32 arithmetic with the CPU's roundings, and packs
// of 16 bytes.
//
// A body is the code of one thread or one warp. nvcc compiles it for the device; the tests compile
// the same text for the host and run every thread in turn. Both contract nothing (-fmad=false,
// -ffp-contract=off).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/dtype.hpp"
#include "kernels/cpu/device_body.hpp"

#ifdef SLUICE_DEVICE_CODE
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "kernels/cpu/isa/simd_scalar.hpp"
#endif

// Unrolls a loop, so that indices into an array are constants and the array stays in registers.
#ifdef __CUDACC__
#define SLUICE_UNROLL _Pragma("unroll")
#else
#define SLUICE_UNROLL
#endif

namespace sluice::cuda {

// clang-format off
#ifdef SLUICE_DEVICE_CODE
using Bf16 = __nv_bfloat16;
using Half = __half;
SLUICE_BODY float widen(float x) { return x; }
SLUICE_BODY float widen(Bf16 x) { return __bfloat162float(x); }
SLUICE_BODY float widen(Half x) { return __half2float(x); }
SLUICE_BODY void narrow(float x, float* to) { *to = x; }
SLUICE_BODY void narrow(float x, Bf16* to) { *to = __float2bfloat16_rn(x); }
SLUICE_BODY void narrow(float x, Half* to) { *to = __float2half_rn(x); }
SLUICE_BODY float fma32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SLUICE_BODY float root(float x) { return __fsqrt_rn(x); }
SLUICE_BODY float quotient(float a, float b) { return __fdiv_rn(a, b); }
// 1 / x for 1 <= x < 2^126: what __frcp_rn does there, without its branch for other numbers.
SLUICE_BODY float reciprocal_in_range(float x) {
#ifdef __CUDA_ARCH__
  float guess;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(x));
  return __fmaf_rn(guess, __fmaf_rn(-x, guess, 1.0F), guess);
#else
  return __fdiv_rn(1.0F, x);
#endif
}
SLUICE_BODY float logarithm(float x) { return logf(x); }
SLUICE_BODY std::uint32_t bits_of(float x) { return __float_as_uint(x); }
SLUICE_BODY float from_bits(std::uint32_t bits) { return __uint_as_float(bits); }
#else
using Bf16 = isa::Bf16;
using Half = isa::Half;
template <class T>
SLUICE_BODY float widen(T x) { return isa::Scalar16::widen(x); }
template <class T>
SLUICE_BODY void narrow(float x, T* to) { isa::Scalar16::narrow(x, to); }
SLUICE_BODY void narrow(float x, float* to) { *to = x; }
SLUICE_BODY float fma32(float a, float b, float c) { return std::fma(a, b, c); }
SLUICE_BODY float root(float x) { return std::sqrt(x); }
SLUICE_BODY float quotient(float a, float b) { return a / b; }
SLUICE_BODY float reciprocal_in_range(float x) { return 1.0F / x; }
SLUICE_BODY float logarithm(float x) { return std::log(x); }
SLUICE_BODY std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
SLUICE_BODY float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
#endif
// clang-format on

// Neighbours in memory that one thread loads and stores at once.
template <class T>
struct alignas(16) Pack {
  static constexpr std::size_t kCount = 16 / sizeof(T);
  static constexpr int kSize = static_cast<int>(kCount);
  float v[kCount];  // in fp32, whatever T
};

// A pack as it lies in memory, in type T.
template <class T>
struct alignas(16) RawPack {
  T v[Pack<T>::kCount];
};

// The thread's place among the threads that share a run of packs.
struct Worker {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

// Loads a pack without conversion. A thread waits for a load at its first arithmetic on the
// elements, so several load_raw() before the first widen() are in flight together. REQUIRES: `from`
// is at a multiple of 16 bytes.
template <class T>
SLUICE_BODY void load_raw(const T* from, RawPack<T>* raw) {
#ifdef SLUICE_DEVICE_CODE
  const uint4 words = *reinterpret_cast<const uint4*>(from);
  memcpy(raw, &words, sizeof *raw);
#else
  std::memcpy(raw, static_cast<const void*>(__builtin_assume_aligned(from, 16)), sizeof *raw);
#endif
}

template <class T>
SLUICE_BODY Pack<T> widen(const RawPack<T>& raw) {
  Pack<T> pack;
  for (int j = 0; j < Pack<T>::kSize; ++j) pack.v[j] = widen(raw.v[j]);
  return pack;
}

// The low and the high bf16 of a word, one instruction each. From a 16-bit value, nvcc needs two
// instructions for the high one.
SLUICE_BODY float low_value(std::uint32_t word) { return from_bits(word << 16); }
SLUICE_BODY float high_value(std::uint32_t word) { return from_bits(word & 0xffff0000U); }

SLUICE_BODY Pack<Bf16> widen(const RawPack<Bf16>& raw) {
  std::uint32_t words[sizeof raw / 4];
  memcpy(words, &raw, sizeof raw);
  Pack<Bf16> pack;
  for (int k = 0; k < Pack<Bf16>::kSize / 2; ++k) {
    pack.v[2 * k] = low_value(words[k]);
    pack.v[2 * k + 1] = high_value(words[k]);
  }
  return pack;
}

// As stored: each element rounded once.
template <class T>
SLUICE_BODY RawPack<T> narrow(const Pack<T>& pack) {
  RawPack<T> raw;
  for (int j = 0; j < Pack<T>::kSize; ++j) narrow(pack.v[j], &raw.v[j]);
  return raw;
}

// Elements [0, count) of `from`; the others are 0. `aligned`: `from` is at a multiple of 16 bytes.
template <class T>
SLUICE_BODY Pack<T> load_pack(const T* from, std::int64_t count, bool aligned) {
  constexpr int kSize = Pack<T>::kSize;
  Pack<T> pack;
  if (aligned && count >= kSize) {
    RawPack<T> raw;
    load_raw(from, &raw);
    pack = widen(raw);
  } else {
    for (int j = 0; j < kSize; ++j) pack.v[j] = j < count ? widen(from[j]) : 0.0F;
  }
  return pack;
}

template <class T>
SLUICE_BODY void store_pack(T* to, const Pack<T>& pack, std::int64_t count, bool aligned) {
  constexpr int kSize = Pack<T>::kSize;
  if (aligned && count >= kSize) {
    const RawPack<T> raw = narrow(pack);
#ifdef SLUICE_DEVICE_CODE
    uint4 words;
    memcpy(&words, &raw, sizeof raw);
    *reinterpret_cast<uint4*>(to) = words;
#else
    std::memcpy(static_cast<void*>(__builtin_assume_aligned(to, 16)), &raw, sizeof raw);
#endif
  } else {
    for (int j = 0; j < kSize; ++j) {
      if (j < count) narrow(pack.v[j], to + j);
    }
  }
}

// Four neighbours as they are in memory, on a multiple of their size.
template <class T>
struct alignas(4 * sizeof(T)) Quad {
  T v[4];
};

template <class T>
SLUICE_BODY void load_quad(const T* from, Quad<T>* to) {
#ifdef SLUICE_DEVICE_CODE
  using Words = std::conditional_t<sizeof(T) == 2, uint2, uint4>;
  const Words words = *reinterpret_cast<const Words*>(from);
  memcpy(to, &words, sizeof words);
#else
  std::memcpy(to, static_cast<const void*>(from), sizeof *to);
#endif
}

template <class T>
SLUICE_BODY void store_quad(const Quad<T>& from, T* to) {
#ifdef SLUICE_DEVICE_CODE
  using Words = std::conditional_t<sizeof(T) == 2, uint2, uint4>;
  Words words;
  memcpy(&words, &from, sizeof words);
  *reinterpret_cast<Words*>(to) = words;
#else
  std::memcpy(static_cast<void*>(to), &from, sizeof from);
#endif
}

SLUICE_BODY std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }

// The largest magnitude of the packs that a thread stores, as fp32 bits. Only for bf16, which FP8
// products read; other types give 0. As integers, the bits of magnitudes have the order of the
// values, and infinity and NaN are above every number. Rounding to bf16 keeps this order, so only
// the largest magnitude is rounded.
template <class T>
struct Largest {
  SLUICE_BODY void add(const Pack<T>&) {}
  [[nodiscard]] SLUICE_BODY std::uint32_t stored() const { return 0; }
};
template <>
struct Largest<Bf16> {
  // Of a whole pack.
  SLUICE_BODY void add(const Pack<Bf16>& pack) {
    for (const float value : pack.v) bits = larger(bits, bits_of(value) & 0x7fffffffU);
  }
  [[nodiscard]] SLUICE_BODY std::uint32_t stored() const {
    Bf16 rounded;
    narrow(from_bits(bits), &rounded);
    return bits_of(widen(rounded));
  }
  std::uint32_t bits = 0;
};

// The last of `count` rows whose `first` is at most `index`. REQUIRES: rows[i].first begins at 0
// and never falls. A row without elements has the same `first` as the next row.
template <class Row>
SLUICE_BODY int row_of(const Row* rows, int count, std::int64_t index) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (rows[middle].first <= index) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Calls f(i, n - i) for each pack of the worker in a run of n elements; i is the pack's first
// element.
template <class T, class Fn>
SLUICE_BODY void for_packs(std::int64_t n, const Worker& worker, Fn f) {
  constexpr std::int64_t kSize = Pack<T>::kSize;
  for (std::int64_t i = worker.index * kSize; i < n; i += worker.count * kSize) f(i, n - i);
}

// As above, with `aligned` as the third argument of f. In a run of whole aligned packs, the last
// two arguments are the constants (kSize, true), so the compiler drops the code for partial packs.
template <class T, class Fn>
SLUICE_BODY void for_packs(std::int64_t n, const Worker& worker, bool aligned, Fn f) {
  constexpr std::int64_t kSize = Pack<T>::kSize;
  if (aligned && n % kSize == 0) {
    for_packs<T>(n, worker, [&](std::int64_t i, std::int64_t) { f(i, kSize, true); });
  } else {
    for_packs<T>(n, worker, [&](std::int64_t i, std::int64_t rest) { f(i, rest, aligned); });
  }
}

}  // namespace sluice::cuda
