// Element types of the SIMD back ends. Include only from simd_*.hpp, *_impl.hpp and isa_*.cpp.
//
// A back end (Scalar16, Avx2x16, Avx512x16) offers one set of operations on 16 float lanes. Kernels
// are templates over it, so every instruction set executes the same IEEE operations on the same
// lanes and the results agree bit for bit (NaN payloads excepted).
//
// The isa_*.cpp files are compiled with instructions that the machine may lack. Whatever they
// instantiate must therefore carry the back end's type in its name or sit in an anonymous
// namespace: an ordinary inline function emitted there could be the copy that the linker keeps for
// everybody.
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

// Adding it to |n| < 2^22 leaves round-to-nearest-even(n) in the low bits of the sum.
inline constexpr float kRoundMagic = 12582912.0F;  // 1.5 * 2^23

}  // namespace sluice::isa
