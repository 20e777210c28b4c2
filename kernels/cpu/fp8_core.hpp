// 8-bit floating-point values, and the scale of a tensor that is rounded to them. Formats and names
// of Micikevicius et al., "FP8 Formats for Deep Learning" (2022), section 3: E4M3 has 4 bits of
// exponent, 3 of mantissa, values up to 448 and no infinities; E5M2 has values up to 57344.
//
// A scale is a power of two. So a rounded value, divided by its scale again, is a bf16 value
// without another rounding, and a CPU computes with the values that a GPU's products read.
//
// Bits of a magnitude: those of |x| in fp32. As integers they have the order of the values, and an
// infinity or NaN is above every number.
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/device_body.hpp"

namespace sluice::fp8 {

struct E4M3 {
  static constexpr int kMantissa = 3;
  static constexpr int kBias = 7;
  static constexpr uint32_t kLargest = 0x43e00000U;  // bits of 448
  static constexpr uint32_t kNan = 0x7fU;
};

struct E5M2 {
  static constexpr int kMantissa = 2;
  static constexpr int kBias = 15;
  static constexpr uint32_t kLargest = 0x47600000U;  // bits of 57344
  static constexpr uint32_t kNan = 0x7fU;
};

SLUICE_BODY uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

SLUICE_BODY float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

SLUICE_BODY uint32_t magnitude(float x) { return bits_of(x) & 0x7fffffffU; }

inline constexpr uint32_t kInfinity = 0x7f800000U;

SLUICE_BODY float power_of_two(int exponent) {  // exponent in [-126, 127]
  return float_of(static_cast<uint32_t>(exponent + 127) << 23);
}

// The exponent k of the largest scale 2^k with amax * 2^k <= the format's largest value, for the
// largest magnitude of a tensor. 0 for amax 0. At most 100, so that 2^-k times the least value of a
// format is a normal bf16. REQUIRES: amax < kInfinity.
template <class Format>
SLUICE_BODY int scale_exponent(uint32_t amax) {
  constexpr int kMost = 100;
  if (amax == 0) return 0;
  constexpr uint32_t kFraction = 0x007fffffU;
  const int largest = static_cast<int>(Format::kLargest >> 23);
  const bool fits = (amax & kFraction) <= (Format::kLargest & kFraction);
  const int k = largest - static_cast<int>(amax >> 23) - (fits ? 0 : 1);
  return k < kMost ? k : kMost;
}

// 2^k, or NaN if amax is not finite. Every value and every product is then NaN, and the step's
// check for non-finite numbers reports it.
template <class Format>
SLUICE_BODY float scale_of(uint32_t amax) {
  return amax < kInfinity ? power_of_two(scale_exponent<Format>(amax)) : float_of(0x7fc00000U);
}

// The reciprocal of scale_of(): a product of rounded operands is multiplied by theirs.
template <class Format>
SLUICE_BODY float inverse_scale_of(uint32_t amax) {
  return amax < kInfinity ? power_of_two(-scale_exponent<Format>(amax)) : float_of(0x7fc00000U);
}

// x rounded to nearest even; magnitudes above the largest value become the largest, a NaN stays.
template <class Format>
SLUICE_BODY uint8_t encode(float x) {
  constexpr int kDropped = 23 - Format::kMantissa;
  constexpr uint32_t kLeastNormal = static_cast<uint32_t>(127 + 1 - Format::kBias) << 23;
  const uint32_t sign = (bits_of(x) >> 24) & 0x80U;
  uint32_t bits = magnitude(x);
  if (bits > kInfinity) return static_cast<uint8_t>(sign | Format::kNan);
  if (bits > Format::kLargest) bits = Format::kLargest;
  if (bits < kLeastNormal) {
    // Adding 2^23 steps of a subnormal rounds to a whole number of them.
    const float shift = power_of_two(1 - Format::kBias - Format::kMantissa + 23);
    bits = bits_of(float_of(bits) + shift) - bits_of(shift);
  } else {
    bits += (1U << (kDropped - 1)) - 1 + ((bits >> kDropped) & 1U);
    bits = (bits >> kDropped) - (static_cast<uint32_t>(127 - Format::kBias) << Format::kMantissa);
  }
  return static_cast<uint8_t>(sign | bits);
}

// The value of a code that encode() returns.
template <class Format>
SLUICE_BODY float decode(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80U) << 24;
  const uint32_t rest = code & 0x7fU;
  if (rest == Format::kNan) return float_of(sign | 0x7fc00000U);
  const uint32_t least_normal = 1U << Format::kMantissa;
  if (rest < least_normal) {
    const float step = power_of_two(1 - Format::kBias - Format::kMantissa);
    return float_of(sign | bits_of(static_cast<float>(rest) * step));
  }
  const uint32_t rebias = static_cast<uint32_t>(127 - Format::kBias) << 23;
  return float_of(sign | ((rest << (23 - Format::kMantissa)) + rebias));
}

}  // namespace sluice::fp8
