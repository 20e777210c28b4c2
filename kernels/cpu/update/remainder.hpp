// fp32 master weights as bf16 weights and remainders, their low 16 bits (update_span.hpp). On the
// compute threads; the bits do not depend on their number. Buffers must not overlap.
#pragma once

#include <cstdint>

namespace sluice {

// Replaces every tie by the next fp32 value towards zero, as every update of bf16 weights does. A
// tie lies exactly between two bf16 values of which the one nearer to zero is even.
void leave_ties(float* master, std::int64_t n);

// remainders[i] = the low 16 bits of master[i].
void take_remainders(std::uint16_t* remainders, const float* master, std::int64_t n);
// Turns bf16 weights, given in fp32, into their master weights. REQUIRES: master weights without
// ties (leave_ties).
void add_remainders(float* weights, const std::uint16_t* remainders, std::int64_t n);

}  // namespace sluice
