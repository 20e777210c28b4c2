// Element types of the SIMD back ends. Include only from simd_*.hpp, *_impl.hpp and isa_*.cpp.
//
// A back end (Scalar16, Avx2x16, Avx512x16) offers one set of operations on 16 float lanes. Kernels
// are templates over the back end. So every instruction set executes the same IEEE operations on
// the same lanes, and the results are bit-identical (except NaN payloads).
//
// The isa_*.cpp files are compiled with instructions that the machine may lack. Every function that
// these files instantiate must carry the back end's type in its name, or be in an anonymous
// namespace. The linker could otherwise keep such a file's copy of an ordinary inline function for
// the whole program.
#pragma once

#include <cstdint>

namespace sluice::isa {

inline constexpr std::int64_t kLanes = 16;

struct Bf16 {
  std::uint16_t bits;
};
struct Half {
  std::uint16_t bits;
};

// If |n| < 2^22, the low bits of n + kRoundMagic are round-to-nearest-even(n).
inline constexpr float kRoundMagic = 12582912.0F;  // 1.5 * 2^23

}  // namespace sluice::isa
