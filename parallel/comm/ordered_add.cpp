#include "parallel/comm/ordered_add.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/index.hpp"
#include "parallel/comm/stream_store.hpp"

namespace sluice {
namespace {

// Elements of a block. The block of the sum (8 KiB of fp32) and of a 16-bit share (4 KiB) stay in
// the first-level cache.
constexpr std::int64_t kBlock = 2048;

float widen(float value) { return value; }

struct BFloat16 {
  std::uint16_t bits;
};
float widen(BFloat16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

// The fp32 element nearest to these bits whose low half is 0; NaN stays NaN. Has no branches.
std::uint32_t rounded_bits(std::uint32_t bits) {
  const std::uint32_t nearest = bits + 0x7fffU + ((bits >> 16) & 1U);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return (nan ? bits | 0x00400000U : nearest) & 0xffff0000U;
}

// An fp32 share that is rounded to bf16 as it is read.
struct RoundedFloat {
  std::uint32_t bits;
};
float widen(RoundedFloat value) { return std::bit_cast<float>(rounded_bits(value.bits)); }

struct Float16 {
  std::uint16_t bits;
};
// Has no branches, so the compiler vectorises it. Has no fp32 subnormal as intermediate value, so
// the thread's flush-to-zero mode does not change the result.
float widen(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  const std::uint32_t rebias =
      magnitude >= 0x7c00U ? 224U << 23 : 112U << 23;  // 224 keeps inf and nan
  const std::uint32_t normal = (magnitude << 13) + rebias;
  const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
  const std::uint32_t bits = magnitude < 0x0400U ? std::bit_cast<std::uint32_t>(tiny) : normal;
  return std::bit_cast<float>(bits | sign);
}

// memcpy, because a share need not be aligned.
template <typename T>
float load(const void* share, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(share) + index * std::int64_t{sizeof(T)}, sizeof(T));
  return widen(value);
}

// Element i of the target depends only on elements i of the inputs. ivdep states this, so the loop
// vectorises although the output may be one of the shares.
template <typename T>
void add_two(const void* a, const void* b, std::int64_t first, std::int64_t n, float* to) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = load<T>(a, first + i) + load<T>(b, first + i);
}

template <typename T>
void add_one(const float* sum, const void* share, std::int64_t first, std::int64_t n, float* to) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = sum[i] + load<T>(share, first + i);
}

// The pass over the last share writes the output directly, unless `accumulate` needs the sum first.
template <typename T>
void add_block(std::span<const void* const> shares, std::int64_t first, std::int64_t n,
               float* output, bool accumulate) {
  std::array<float, kBlock> sum;
  const auto target = [&](std::size_t count) {
    return count == shares.size() && !accumulate ? output + first : sum.data();
  };
  if (shares.size() == 1) {
    float* to = target(1);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) to[i] = load<T>(shares[0], first + i);
  } else {
    add_two<T>(shares[0], shares[1], first, n, target(2));
    for (std::size_t r = 2; r < shares.size(); ++r) {
      add_one<T>(sum.data(), shares[r], first, n, target(r + 1));
    }
  }
  if (!accumulate) return;
  for (std::int64_t i = 0; i < n; ++i) output[first + i] += nth(sum, i);
}

// Adds fp32 shares; the last addition writes its result past the caches.
void stream_block(std::span<const void* const> shares, std::int64_t first, std::int64_t n,
                  float* output) {
  std::array<float, kBlock> sum;
  const auto* left = static_cast<const float*>(shares[0]) + first;
  for (std::size_t r = 1; r + 1 < shares.size(); ++r) {
    if (r == 1) {
      add_two<float>(shares[0], shares[1], first, n, sum.data());
    } else {
      add_one<float>(sum.data(), shares[r], first, n, sum.data());
    }
    left = sum.data();
  }
  stream_add(left, static_cast<const float*>(shares.back()) + first, n, output + first);
}

// False if the output is one of the shares: its lines are then in the cache already.
bool pays_to_stream(std::span<const void* const> shares, std::int64_t elems, const float* output,
                    bool accumulate) {
  return !accumulate && shares.size() > 1 && elems * std::int64_t{sizeof(float)} >= kStreamBytes &&
         std::find(shares.begin(), shares.end(), output) == shares.end();
}

template <typename T>
void add_all(std::span<const void* const> shares, std::int64_t elems, float* output,
             bool accumulate) {
  const bool stream = std::is_same_v<T, float> && pays_to_stream(shares, elems, output, accumulate);
  // Two shares need no intermediate sum, so no blocks.
  const std::int64_t block = stream && shares.size() == 2 ? elems : kBlock;
  for (std::int64_t first = 0; first < elems; first += block) {
    const std::int64_t n = std::min(block, elems - first);
    if (stream) {
      stream_block(shares, first, n, output);
    } else {
      add_block<T>(shares, first, n, output, accumulate);
    }
  }
}

}  // namespace

void ordered_add(std::span<const void* const> shares, ReduceDtype dtype, std::int64_t elems,
                 float* output, bool accumulate) {
  if (dtype.rounds()) return add_all<RoundedFloat>(shares, elems, output, accumulate);
  switch (dtype.input) {
    case DType::kFloat32:
      return add_all<float>(shares, elems, output, accumulate);
    case DType::kBFloat16:
      return add_all<BFloat16>(shares, elems, output, accumulate);
    case DType::kFloat16:
      return add_all<Float16>(shares, elems, output, accumulate);
  }
}

void round_share(const void* share, std::int64_t elems, void* rounded) {
  const auto* const from = static_cast<const char*>(share);
  auto* const to = static_cast<char*>(rounded);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < elems; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, from + i * 4, 4);
    const auto high = static_cast<std::uint16_t>(rounded_bits(bits) >> 16);
    std::memcpy(to + i * 2, &high, 2);
  }
}

}  // namespace sluice
