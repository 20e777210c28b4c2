// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011). Element i of a stream is a
// function of (seed, stream, i) alone. The requested range, machine, thread or GPU do not matter.
//
// Element i is word i % 4 of the block with counter (i / 4, stream) and key `seed`. Thread-safe;
// the fills run on the compute threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

// One raw block. Counter words: (block low, block high, stream low, stream high); key: (seed low,
// seed high).
[[nodiscard]] std::array<std::uint32_t, 4> philox_block(std::uint64_t seed, std::uint64_t stream,
                                                        std::uint64_t block);

// The stream of a parameter: a fixed 64-bit hash of its name. Initial weights depend on this hash.
[[nodiscard]] std::uint64_t hash_name(std::string_view name);
// A stream from several numbers, such as (layer, micro-batch, step). {a, b} and {b, a} differ.
[[nodiscard]] std::uint64_t hash_stream(std::span<const std::uint64_t> parts);

// out[k] = mean + std * z, where z is the normal value of element first_element + k (Box-Muller in
// double, rounded once). |z| <= sqrt(64 ln 2) < 6.67. REQUIRES: first_element >= 0.
void fill_normal(std::span<float> out, std::uint64_t seed, std::uint64_t stream,
                 std::int64_t first_element, float mean, float std);

// keep[k] = 1 with probability 1 - p, else 0. The float form holds 1 / (1 - p) instead of 1; both
// forms drop the same elements. Throws Error unless 0 <= p < 1.
void fill_dropout_mask(std::span<std::uint8_t> keep, std::uint64_t seed, std::uint64_t stream,
                       std::int64_t first_element, double p);
void fill_dropout_mask(std::span<float> keep, std::uint64_t seed, std::uint64_t stream,
                       std::int64_t first_element, double p);

}  // namespace sluice
