// Inputs of the communicators' tests: any rank knows the elements of every rank.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/dtype.hpp"

namespace sluice {

inline std::uint32_t hash(std::uint64_t rank, std::uint64_t index) {
  std::uint64_t x = rank * 0x9e3779b97f4a7c15ULL + index + 1;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return static_cast<std::uint32_t>(x >> 32);
}

// Element i of a rank's buffer: finite values of very different size, so that every order of adding
// is another result.
inline void put_element(DType dtype, int rank, std::int64_t i, char* at) {
  const std::uint32_t h = hash(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i));
  if (dtype == DType::kFloat32) {
    const std::uint32_t bits = (h & 0x80ffffffU) | (120U + (h >> 24 & 15U)) << 23;
    std::memcpy(at, &bits, 4);
  } else {
    // The exponent's top bits are cleared: no infinities; fp16 subnormals are among them.
    const auto bits =
        static_cast<std::uint16_t>(h & (dtype == DType::kFloat16 ? 0xbbffU : 0xbfffU));
    std::memcpy(at, &bits, 2);
  }
}

inline std::vector<char> make_input(DType dtype, int rank, std::int64_t elems) {
  std::vector<char> bytes(static_cast<std::size_t>(elems * size_of(dtype)));
  for (std::int64_t i = 0; i < elems; ++i) {
    put_element(dtype, rank, i, bytes.data() + i * size_of(dtype));
  }
  return bytes;
}

inline float input_value(DType dtype, int rank, std::int64_t index) {
  std::uint32_t bits = 0;
  put_element(dtype, rank, index, reinterpret_cast<char*>(&bits));
  if (dtype == DType::kFloat32) return std::bit_cast<float>(bits);
  if (dtype == DType::kBFloat16) return std::bit_cast<float>(bits << 16);
  _Float16 half = 0;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}

}  // namespace sluice
