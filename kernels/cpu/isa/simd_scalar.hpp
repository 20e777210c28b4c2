// 16 lanes as a plain array: the reference back end, and the only one on machines without AVX2.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/isa/simd_types.hpp"

namespace sluice::isa {

struct Scalar16 {
  struct F {
    float v[16];
  };
  struct D {
    double v[16];
  };

  template <class Op>
  static F lanes(Op op) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = op(i);
    return r;
  }

  static float widen(float x) { return x; }
  static float widen(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
  static float widen(Half x) {
    const std::uint32_t sign = (x.bits & 0x8000U) << 16;
    const std::uint32_t exponent = x.bits & 0x7c00U;
    const std::uint32_t mantissa = x.bits & 0x03ffU;
    if (exponent == 0x7c00U) {  // infinity or NaN; a NaN becomes quiet, as in vcvtph2ps
      const std::uint32_t quiet = mantissa != 0 ? 0x00400000U : 0U;
      return std::bit_cast<float>(sign | 0x7f800000U | quiet | (mantissa << 13));
    }
    if (exponent == 0) {  // subnormal: exact, and not affected by flush-to-zero
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
    }
    return std::bit_cast<float>(sign | (((exponent | mantissa) << 13) + 0x38000000U));
  }

  static void narrow(float x, float* to) { *to = x; }
  static void narrow(float x, Bf16* to) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    to->bits = static_cast<std::uint16_t>(nan ? (u >> 16) | 0x40U : rounded);
  }
  static void narrow(float x, Half* to) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = (u >> 16) & 0x8000U;
    to->bits = static_cast<std::uint16_t>(sign | half_magnitude(u & 0x7fffffffU));
  }

  template <class T>
  static F load(const T* p) {
    return lanes([p](int i) { return widen(p[i]); });
  }
  template <class T>
  static void store(T* p, F a) {
    for (int i = 0; i < 16; ++i) narrow(a.v[i], p + i);
  }
  template <class T>
  static void stream(T* p, F a) {
    store(p, a);
  }
  // Orders streamed stores before later stores that publish them to other threads.
  static void fence() {}
  // Replaces ties by the next fp32 value towards zero, which rounds to the same bf16. A tie lies
  // exactly between two bf16 values of which the one nearer to zero is even.
  static F leave_ties(F a) {
    return lanes([&a](int i) {
      const std::uint32_t u = std::bit_cast<std::uint32_t>(a.v[i]);
      return std::bit_cast<float>(u - ((u & 0x1ffffU) == 0x8000U ? 1U : 0U));
    });
  }
  // Joins bf16 values and the low 16 bits of the fp32 values. REQUIRES: no fp32 value is a tie
  // (leave_ties).
  static F load_split(const Bf16* p, const std::uint16_t* low) {
    return lanes([p, low](int i) {
      const auto remainder = static_cast<std::uint32_t>(static_cast<std::int16_t>(low[i]));
      return std::bit_cast<float>((std::uint32_t{p[i].bits} << 16) + remainder);
    });
  }
  static void store_low(std::uint16_t* p, F a) {
    for (int i = 0; i < 16; ++i) {
      p[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(a.v[i]));
    }
  }
  static void stream_low(std::uint16_t* p, F a) { store_low(p, a); }
  // Adds 16 random bits (words[i] from bit kShift on) to the 16 bits that bf16 drops, and
  // truncates. So the magnitude rounds up with a probability equal to the dropped fraction of a
  // bf16 step. Infinities stay.
  template <int kShift>
  static void store_stochastic(Bf16* p, F a, const std::uint32_t* words) {
    for (int i = 0; i < 16; ++i) {
      const std::uint32_t u = std::bit_cast<std::uint32_t>(a.v[i]);
      const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
      const std::uint32_t rounded = u + ((words[i] >> kShift) & 0xffffU);
      p[i].bits = static_cast<std::uint16_t>((nan ? u | 0x400000U : rounded) >> 16);
    }
  }

  static F set1(float x) {
    return lanes([x](int) { return x; });
  }
  static F add(F a, F b) {
    return lanes([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return lanes([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(F a, F b) {
    return lanes([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(F a, F b) {
    return lanes([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F sqrt(F a) {
    return lanes([&](int i) { return std::sqrt(a.v[i]); });
  }
  static F fma(F a, F b, F c) {
    return lanes([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  // Like minps and maxps: the second operand if either operand is NaN.
  static F min(F a, F b) {
    return lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F max(F a, F b) {
    return lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  // 2^n from t = n + kRoundMagic, -127 < n <= 128 (128 gives infinity).
  static F pow2(F t) {
    return lanes([&](int i) {
      return std::bit_cast<float>((std::bit_cast<std::uint32_t>(t.v[i]) + 127U) << 23);
    });
  }
  // r, or 0 in the lanes where x < limit.
  static F zero_below(F x, F limit, F r) {
    return lanes([&](int i) { return x.v[i] < limit.v[i] ? 0.0F : r.v[i]; });
  }

  struct U {
    std::uint32_t v[16];
  };
  struct Wide {
    U low, high;
  };
  static U uset1(std::uint32_t x) {
    U r;
    for (std::uint32_t& lane : r.v) lane = x;
    return r;
  }
  static U ulane() { return {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}; }
  static U uadd(U a, U b) {
    for (int i = 0; i < 16; ++i) a.v[i] += b.v[i];
    return a;
  }
  static U uxor(U a, U b) {
    for (int i = 0; i < 16; ++i) a.v[i] ^= b.v[i];
    return a;
  }
  // The high and low halves of the 64-bit products.
  static Wide umul_wide(U a, std::uint32_t k) {
    Wide r;
    for (int i = 0; i < 16; ++i) {
      const std::uint64_t product = std::uint64_t{k} * a.v[i];
      r.low.v[i] = static_cast<std::uint32_t>(product);
      r.high.v[i] = static_cast<std::uint32_t>(product >> 32);
    }
    return r;
  }
  static void ustore(std::uint32_t* to, U a) {
    for (int i = 0; i < 16; ++i) to[i] = a.v[i];
  }

  static D dzero() { return D{}; }
  static D dadd(D acc, F x) {
    for (int i = 0; i < 16; ++i) acc.v[i] += static_cast<double>(x.v[i]);
    return acc;
  }
  // The square of a float is exact in double, so a fused operation gives the same bits.
  static D dadd_square(D acc, F x) {
    for (int i = 0; i < 16; ++i) {
      acc.v[i] += static_cast<double>(x.v[i]) * static_cast<double>(x.v[i]);
    }
    return acc;
  }
  static void dstore(double* to, D a) {
    for (int i = 0; i < 16; ++i) to[i] = a.v[i];
  }

 private:
  // fp16 bits of |x|, round to nearest even, from the fp32 bits of |x|.
  static std::uint32_t half_magnitude(std::uint32_t u) {
    if (u > 0x7f800000U) return 0x7e00U | ((u >> 13) & 0x3ffU);
    if (u >= 0x477ff000U) return 0x7c00U;  // >= 65520: infinity
    if (u >= 0x38800000U) return (u + 0xfffU + ((u >> 13) & 1U) - 0x38000000U) >> 13;
    if (u <= 0x33000000U) return 0;  // <= 2^-25, the tie between 0 and the smallest subnormal
    const std::uint32_t shift = 126U - (u >> 23);
    const std::uint32_t mantissa = (u & 0x7fffffU) | 0x800000U;
    const std::uint32_t rest = mantissa & ((1U << shift) - 1U);
    const std::uint32_t middle = 1U << (shift - 1U);
    const std::uint32_t half = mantissa >> shift;
    return half + ((rest > middle || (rest == middle && (half & 1U) != 0)) ? 1U : 0U);
  }
};

}  // namespace sluice::isa
