// fp32 master weights as bf16 weights and remainders, their low 16 bits (update_span.hpp). On the
// compute threads; the bits do not depend on their number. Buffers must not overlap.
#pragma once

#include <cstdint>

namespace sluice {

// Master weights that lie exactly between two bf16 values, of which the smaller is even, become the
// next fp32 value towards zero, as every update of bf16 weights leaves them.
void leave_ties(float* master, std::int64_t n);

void take_remainders(std::uint16_t* remainders, const float* master, std::int64_t n);
// From bf16 weights in fp32 to their master weights.
void add_remainders(float* weights, const std::uint16_t* remainders, std::int64_t n);

}  // namespace sluice
