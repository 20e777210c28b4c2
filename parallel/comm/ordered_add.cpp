#include "parallel/comm/ordered_add.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace sluice {
namespace {

// A block of the sum stays in the first-level cache while the shares stream by: 8 KiB of fp32, 4
// KiB of a 16-bit share.
constexpr std::int64_t kBlock = 2048;

float widen(float value) { return value; }

struct BFloat16 {
  std::uint16_t bits;
};
float widen(BFloat16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

struct Float16 {
  std::uint16_t bits;
};
// Without branches, so that the compiler vectorises it, and without an fp32 subnormal on the way,
// so that the thread's flush-to-zero mode does not change the result.
float widen(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  const std::uint32_t rebias =
      magnitude >= 0x7c00U ? 224U << 23 : 112U << 23;  // inf and nan stay so
  const std::uint32_t normal = (magnitude << 13) + rebias;
  const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
  const std::uint32_t bits = magnitude < 0x0400U ? std::bit_cast<std::uint32_t>(tiny) : normal;
  return std::bit_cast<float>(bits | sign);
}

template <typename T>
void add_block(std::span<const void* const> shares, std::int64_t first, std::int64_t n,
               float* output, bool accumulate) {
  std::array<float, kBlock> sum;
  std::array<T, kBlock> share;
  const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
  for (std::size_t r = 0; r < shares.size(); ++r) {
    std::memcpy(share.data(), static_cast<const T*>(shares[r]) + first, bytes);
    if (r == 0) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) sum[i] = widen(share[i]);
    } else {
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) sum[i] += widen(share[i]);
    }
  }
  if (accumulate) {
    for (std::int64_t i = 0; i < n; ++i) output[first + i] += sum[static_cast<std::size_t>(i)];
  } else {
    std::memcpy(output + first, sum.data(), static_cast<std::size_t>(n) * sizeof(float));
  }
}

template <typename T>
void add_all(std::span<const void* const> shares, std::int64_t elems, float* output,
             bool accumulate) {
  for (std::int64_t first = 0; first < elems; first += kBlock) {
    add_block<T>(shares, first, std::min(kBlock, elems - first), output, accumulate);
  }
}

}  // namespace

void ordered_add(std::span<const void* const> shares, DType input, std::int64_t elems,
                 float* output, bool accumulate) {
  switch (input) {
    case DType::kFloat32:
      return add_all<float>(shares, elems, output, accumulate);
    case DType::kBFloat16:
      return add_all<BFloat16>(shares, elems, output, accumulate);
    case DType::kFloat16:
      return add_all<Float16>(shares, elems, output, accumulate);
  }
}

}  // namespace sluice
