// 16 lanes as one AVX-512 register. Needs F, BW, DQ, VL.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/simd_types.hpp"

namespace sluice::isa {

struct Avx512x16 {
  using F = __m512;
  struct D {
    __m512d lo, hi;
  };

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const Bf16* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(cast(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static F load(const Half* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(cast(p))); }

  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static void store(Bf16* p, F a) { _mm256_storeu_si256(cast(p), to_bf16(a)); }
  static void store(Half* p, F a) { _mm256_storeu_si256(cast(p), to_half(a)); }
  // Store that bypasses the caches. REQUIRES: p aligned to 16 elements.
  static void stream(float* p, F a) { _mm512_stream_ps(p, a); }
  static void stream(Bf16* p, F a) { _mm256_stream_si256(cast(p), to_bf16(a)); }
  static void stream(Half* p, F a) { _mm256_stream_si256(cast(p), to_half(a)); }
  // Orders streamed stores before later stores that publish them to other threads.
  static void fence() { _mm_sfence(); }
  static F leave_ties(F a) {
    const __m512i u = _mm512_castps_si512(a);
    const __m512i low = _mm512_and_si512(u, _mm512_set1_epi32(0x1ffff));
    const __mmask16 tie = _mm512_cmpeq_epi32_mask(low, _mm512_set1_epi32(0x8000));
    return _mm512_castsi512_ps(_mm512_mask_sub_epi32(u, tie, u, _mm512_set1_epi32(1)));
  }
  static F load_split(const Bf16* p, const std::uint16_t* low) {
    const __m512i remainder = _mm512_cvtepi16_epi32(_mm256_loadu_si256(cast(low)));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(load(p)), remainder));
  }
  static void store_low(std::uint16_t* p, F a) {
    _mm256_storeu_si256(cast(p), _mm512_cvtepi32_epi16(_mm512_castps_si512(a)));
  }
  static void stream_low(std::uint16_t* p, F a) {
    _mm256_stream_si256(cast(p), _mm512_cvtepi32_epi16(_mm512_castps_si512(a)));
  }
  template <int kShift>
  static void store_stochastic(Bf16* p, F a, const std::uint32_t* words) {
    const __m512i w = _mm512_loadu_si512(words);
    const __m512i random =
        _mm512_and_si512(_mm512_srli_epi32(w, kShift), _mm512_set1_epi32(0xffff));
    const __m512i u = _mm512_castps_si512(a);
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    const __m512i kept = _mm512_mask_mov_epi32(_mm512_add_epi32(u, random), nan, quiet);
    _mm256_storeu_si256(cast(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
  }

  static F set1(float x) { return _mm512_set1_ps(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F pow2(F t) {
    const __m512i biased = _mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }
  static F zero_below(F x, F limit, F r) {
    // "not less than", including unordered: a NaN keeps r.
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), r);
  }

  using U = __m512i;
  struct Wide {
    U low, high;
  };
  static U uset1(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static U ulane() {
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  }
  static U uadd(U a, U b) { return _mm512_add_epi32(a, b); }
  static U uxor(U a, U b) { return _mm512_xor_si512(a, b); }
  static Wide umul_wide(U a, std::uint32_t k) {
    const U even = _mm512_mul_epu32(a, uset1(k));
    const U odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), uset1(k));
    return {_mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA),
            _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB)};
  }
  static void ustore(std::uint32_t* to, U a) { _mm512_storeu_si512(to, a); }

  static D dzero() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
  static D dadd(D acc, F x) {
    return {_mm512_add_pd(acc.lo, low(x)), _mm512_add_pd(acc.hi, high(x))};
  }
  static D dadd_square(D acc, F x) {
    const __m512d lo = low(x);
    const __m512d hi = high(x);
    return {_mm512_fmadd_pd(lo, lo, acc.lo), _mm512_fmadd_pd(hi, hi, acc.hi)};
  }
  static void dstore(double* to, D a) {
    _mm512_storeu_pd(to, a.lo);
    _mm512_storeu_pd(to + 8, a.hi);
  }

 private:
  static const __m256i* cast(const void* p) { return static_cast<const __m256i*>(p); }
  static __m256i* cast(void* p) { return static_cast<__m256i*>(p); }
  static __m512d low(F x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
  static __m512d high(F x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
  static __m256i to_half(F a) {
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // Rounds with integers, because vcvtneps2bf16 would flush subnormals.
  static __m256i to_bf16(F a) {
    const __m512i u = _mm512_castps_si512(a);
    const __m512i top = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_srli_epi32(sum, 16);
    const __m512i quiet = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
  }
};

}  // namespace sluice::isa
