// The integers behind all random numbers: Philox4x32-10 and the hash of a stream. One text for the
// host's kernels and the device's, so that both draw the same masks. `Tag` separates the instances
// of files with different compiler flags (reason: isa/simd_types.hpp).
#pragma once

#include <cstdint>

#include "kernels/cpu/device_body.hpp"

namespace sluice::isa {

// Ten rounds in place. x0..x3: counter words; k0, k1: key words.
template <class Tag>
SLUICE_BODY void philox_rounds(std::uint32_t& x0, std::uint32_t& x1, std::uint32_t& x2,
                               std::uint32_t& x3, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * x0;
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * x2;
    const std::uint32_t y0 = static_cast<std::uint32_t>(b >> 32) ^ x1 ^ k0;
    const std::uint32_t y2 = static_cast<std::uint32_t>(a >> 32) ^ x3 ^ k1;
    x0 = y0;
    x1 = static_cast<std::uint32_t>(b);
    x2 = y2;
    x3 = static_cast<std::uint32_t>(a);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
}

// The finaliser of MurmurHash3 (public domain): every input bit affects every output bit.
template <class Tag>
SLUICE_BODY std::uint64_t mix_bits(std::uint64_t h) {
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdU;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53U;
  return h ^ (h >> 33);
}

inline constexpr std::uint64_t kStreamStart = 0x243f6a8885a308d3U;  // pi's first fraction bits

// The hash of a stream's numbers so far, and one more number.
template <class Tag>
SLUICE_BODY std::uint64_t with_part(std::uint64_t hash, std::uint64_t part) {
  return mix_bits<Tag>(hash * 0x9e3779b97f4a7c15U + mix_bits<Tag>(part + 1));
}

}  // namespace sluice::isa
