// 16 lanes as two AVX registers. Needs AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/simd_types.hpp"

namespace sluice::isa {

struct Avx2x16 {
  struct F {
    __m256 lo, hi;
  };
  struct D {
    __m256d v[4];
  };

  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F load(const Bf16* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
  static F load(const Half* p) {
    return {_mm256_cvtph_ps(load8(p)), _mm256_cvtph_ps(load8(p + 8))};
  }

  static void store(float* p, F a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
  }
  static void store(Bf16* p, F a) { _mm256_storeu_si256(cast(p), to_bf16(a)); }
  static void store(Half* p, F a) { _mm256_storeu_si256(cast(p), to_half(a)); }
  // Store that bypasses the caches. REQUIRES: p aligned to 16 elements.
  static void stream(float* p, F a) {
    _mm256_stream_ps(p, a.lo);
    _mm256_stream_ps(p + 8, a.hi);
  }
  static void stream(Bf16* p, F a) { _mm256_stream_si256(cast(p), to_bf16(a)); }
  static void stream(Half* p, F a) { _mm256_stream_si256(cast(p), to_half(a)); }
  // Orders streamed stores before later stores that publish them to other threads.
  static void fence() { _mm_sfence(); }
  static F leave_ties(F a) { return {leave_ties(a.lo), leave_ties(a.hi)}; }
  static F load_split(const Bf16* p, const std::uint16_t* low) {
    return {add_remainders(widen_bf16(p), low), add_remainders(widen_bf16(p + 8), low + 8)};
  }
  static void store_low(std::uint16_t* p, F a) { _mm256_storeu_si256(cast(p), low16(a)); }
  static void stream_low(std::uint16_t* p, F a) { _mm256_stream_si256(cast(p), low16(a)); }
  template <int kShift>
  static void store_stochastic(Bf16* p, F a, const std::uint32_t* words) {
    _mm256_storeu_si256(cast(p), pack16(stochastic_lanes<kShift>(a.lo, words),
                                        stochastic_lanes<kShift>(a.hi, words + 8)));
  }

  static F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  static F sqrt(F a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  static F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  static F pow2(F t) { return {pow2(t.lo), pow2(t.hi)}; }
  static F zero_below(F x, F limit, F r) {
    // "not less than", including unordered: a NaN keeps r.
    return {_mm256_and_ps(_mm256_cmp_ps(x.lo, limit.lo, _CMP_NLT_UQ), r.lo),
            _mm256_and_ps(_mm256_cmp_ps(x.hi, limit.hi, _CMP_NLT_UQ), r.hi)};
  }

  struct U {
    __m256i lo, hi;
  };
  struct Wide {
    U low, high;
  };
  static U uset1(std::uint32_t x) {
    const __m256i all = _mm256_set1_epi32(static_cast<int>(x));
    return {all, all};
  }
  static U ulane() {
    return {_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0),
            _mm256_set_epi32(15, 14, 13, 12, 11, 10, 9, 8)};
  }
  static U uadd(U a, U b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
  static U uxor(U a, U b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
  static Wide umul_wide(U a, std::uint32_t k) {
    const HalfWide lo = umul_wide(a.lo, k);
    const HalfWide hi = umul_wide(a.hi, k);
    return {{lo.low, hi.low}, {lo.high, hi.high}};
  }
  static void ustore(std::uint32_t* to, U a) {
    _mm256_storeu_si256(cast(to), a.lo);
    _mm256_storeu_si256(cast(to + 8), a.hi);
  }

  static D dzero() {
    const __m256d zero = _mm256_setzero_pd();
    return {{zero, zero, zero, zero}};
  }
  static D dadd(D acc, F x) {
    const D wide = to_double(x);
    for (int i = 0; i < 4; ++i) acc.v[i] = _mm256_add_pd(acc.v[i], wide.v[i]);
    return acc;
  }
  static D dadd_square(D acc, F x) {
    const D wide = to_double(x);
    for (int i = 0; i < 4; ++i) acc.v[i] = _mm256_fmadd_pd(wide.v[i], wide.v[i], acc.v[i]);
    return acc;
  }
  static void dstore(double* to, D a) {
    for (int i = 0; i < 4; ++i) _mm256_storeu_pd(to + 4 * i, a.v[i]);
  }

 private:
  struct HalfWide {
    __m256i low, high;
  };
  static HalfWide umul_wide(__m256i a, std::uint32_t k) {
    const __m256i factor = _mm256_set1_epi32(static_cast<int>(k));
    const __m256i even = _mm256_mul_epu32(a, factor);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
    return {_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa),
            _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa)};
  }
  static __m256i* cast(void* p) { return static_cast<__m256i*>(p); }
  static __m128i load8(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m256 widen_bf16(const Bf16* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load8(p)), 16));
  }
  static __m256i low16(F a) {
    const __m256i low = _mm256_set1_epi32(0xffff);
    return pack16(_mm256_and_si256(_mm256_castps_si256(a.lo), low),
                  _mm256_and_si256(_mm256_castps_si256(a.hi), low));
  }
  static __m256 leave_ties(__m256 a) {
    const __m256i u = _mm256_castps_si256(a);
    const __m256i low = _mm256_and_si256(u, _mm256_set1_epi32(0x1ffff));
    const __m256i tie = _mm256_cmpeq_epi32(low, _mm256_set1_epi32(0x8000));  // -1 or 0
    return _mm256_castsi256_ps(_mm256_add_epi32(u, tie));
  }
  static __m256 add_remainders(__m256 high, const std::uint16_t* low) {
    const __m256i remainder = _mm256_cvtepi16_epi32(load8(low));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(high), remainder));
  }
  static __m256 pow2(__m256 t) {
    const __m256i biased = _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static D to_double(F x) {
    return {{_mm256_cvtps_pd(_mm256_castps256_ps128(x.lo)),
             _mm256_cvtps_pd(_mm256_extractf128_ps(x.lo, 1)),
             _mm256_cvtps_pd(_mm256_castps256_ps128(x.hi)),
             _mm256_cvtps_pd(_mm256_extractf128_ps(x.hi, 1))}};
  }
  static __m256i to_half(F a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm256_set_m128i(_mm256_cvtps_ph(a.hi, kNearest), _mm256_cvtps_ph(a.lo, kNearest));
  }
  // The bf16 bits of each lane, in the low half of a 32-bit lane.
  static __m256i bf16_lanes(__m256 a) {
    const __m256i u = _mm256_castps_si256(a);
    const __m256i top = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
  }
  template <int kShift>
  static __m256i stochastic_lanes(__m256 a, const std::uint32_t* words) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    const __m256i random =
        _mm256_and_si256(_mm256_srli_epi32(w, kShift), _mm256_set1_epi32(0xffff));
    const __m256i u = _mm256_castps_si256(a);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    return _mm256_srli_epi32(_mm256_blendv_epi8(_mm256_add_epi32(u, random), quiet, nan), 16);
  }
  static __m256i to_bf16(F a) { return pack16(bf16_lanes(a.lo), bf16_lanes(a.hi)); }
  static __m256i pack16(__m256i lo, __m256i hi) {
    // packus works within 128-bit halves, so the quarters come out in the order 0 2 1 3.
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
  }
};

}  // namespace sluice::isa
