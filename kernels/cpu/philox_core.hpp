// Normal values from the words of Philox (philox_rounds.hpp), shared by the CPU back ends. `Tag`
// separates the instances of files with different compiler flags (reason: simd_types.hpp).
//
// Uses only + - * / sqrt and explicit fma in double, so every machine gets the same bits. Must be
// compiled without contraction: -ffp-contract=off.
#pragma once

#include <math.h>
#include <string.h>

#include <cstdint>

#include "kernels/cpu/philox_rounds.hpp"

namespace sluice::isa {

// ln((r + 1) / 2^32), within 1e-13: r + 1 = 2^e * m with m in [0.75, 1.5), ln m = 2
// artanh((m-1)/(m+1)).
template <class Tag>
inline double log_uniform(std::uint32_t r) {
  double m = static_cast<double>(r) + 1.0;
  std::uint64_t bits;
  memcpy(&bits, &m, sizeof(bits));
  // Moves the borders of the binades from 1 to 0.75, so that |m - 1| is small on both sides of 1.
  const std::uint64_t shifted = bits + 0x0008000000000000U;
  const std::uint64_t exponent = (shifted >> 52) - 1023U;
  bits -= exponent << 52;
  memcpy(&m, &bits, sizeof(m));
  const double s = (m - 1.0) / (m + 1.0);
  const double q = s * s;  // <= 1/25
  double p = 1.0 / 17;
  p = fma(p, q, 1.0 / 15);
  p = fma(p, q, 1.0 / 13);
  p = fma(p, q, 1.0 / 11);
  p = fma(p, q, 1.0 / 9);
  p = fma(p, q, 1.0 / 7);
  p = fma(p, q, 1.0 / 5);
  p = fma(p, q, 1.0 / 3);
  p = fma(p, q, 1.0);
  const double e = static_cast<double>(static_cast<std::int32_t>(exponent) - 32);
  return fma(e, 0.693147180559945309417, 2.0 * s * p);
}

// cos and sin of 2 pi r / 2^32: the nearest quarter turn, and a Taylor series for the remainder.
template <class Tag>
inline void turn(std::uint32_t r, double& cosine, double& sine) {
  const std::uint32_t quarter = (r + 0x20000000U) >> 30;  // 0..3
  const std::int32_t rest = static_cast<std::int32_t>(r - (quarter << 30));
  const double x = static_cast<double>(rest) * (6.283185307179586476925 * 0x1p-32);  // |x| <= pi/4
  const double q = x * x;
  double s = 1.0 / 1307674368000.0;  // 1/15!
  s = fma(-s, q, 1.0 / 6227020800.0);
  s = fma(-s, q, 1.0 / 39916800.0);
  s = fma(-s, q, 1.0 / 362880.0);
  s = fma(-s, q, 1.0 / 5040.0);
  s = fma(-s, q, 1.0 / 120.0);
  s = fma(-s, q, 1.0 / 6.0);
  s = fma(-s, q, 1.0) * x;
  double c = 1.0 / 87178291200.0;  // 1/14!
  c = fma(-c, q, 1.0 / 479001600.0);
  c = fma(-c, q, 1.0 / 3628800.0);
  c = fma(-c, q, 1.0 / 40320.0);
  c = fma(-c, q, 1.0 / 720.0);
  c = fma(-c, q, 1.0 / 24.0);
  c = fma(-c, q, 0.5);
  c = fma(-c, q, 1.0);
  const bool odd = (quarter & 1U) != 0;
  const double first = odd ? s : c;
  const double second = odd ? c : s;
  cosine = (quarter == 1 || quarter == 2) ? -first : first;
  sine = (quarter == 2 || quarter == 3) ? -second : second;
}

// Two standard normal values from two words.
template <class Tag>
inline void box_muller(std::uint32_t a, std::uint32_t b, double& z0, double& z1) {
  const double radius = sqrt(-2.0 * log_uniform<Tag>(a));
  double c;
  double s;
  turn<Tag>(b, c, s);
  z0 = radius * c;
  z1 = radius * s;
}

}  // namespace sluice::isa
