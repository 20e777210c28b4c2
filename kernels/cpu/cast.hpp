// Conversions between fp32, bf16 and fp16, and accumulation in fp32.
//
// A conversion to a narrower dtype rounds to nearest even, overflows to infinity, keeps subnormals
// (even under flush-to-zero), and keeps a NaN as a quiet NaN.
//
// Element-wise, on the compute threads. Bits do not depend on instruction set, threads or cuts.
// Buffers must not overlap, except that input and output of equal dtype may be one buffer.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

[[nodiscard]] std::uint16_t bf16_bits(float value);
[[nodiscard]] std::uint16_t fp16_bits(float value);
[[nodiscard]] float float_of_bf16(std::uint16_t bits);
[[nodiscard]] float float_of_fp16(std::uint16_t bits);

// n elements from src to dst; equal dtypes copy the bits.
void convert(void* dst, DType dst_dtype, const void* src, DType src_dtype, std::int64_t n);

// acc = x, or acc += x, in fp32.
void add_to(float* acc, const void* x, DType dtype, std::int64_t n, bool accumulate);

// s = ((in[0] + in[1]) + in[2]) + ...; out = s, or out += s, in fp32. The span gives the order, so
// ranks with the same list of inputs get the same bits. REQUIRES: at least one input.
void ordered_sum(float* out, std::span<const void* const> inputs, DType dtype, std::int64_t n,
                 bool accumulate);

// x *= factor.
void scale(float* x, std::int64_t n, float factor);

}  // namespace sluice
