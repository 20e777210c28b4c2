#include "parallel/comm/ordered_add.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cast.hpp"
#include "parallel/comm/stream_store.hpp"

namespace sluice {
namespace {

// An independent reading of the format: sign, exponent, fraction.
float fp16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity() : std::nanf("");
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

TEST(OrderedAdd, ReadsEveryFp16Value) {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> output(bits.size());
  const std::array<const void*, 1> shares{bits.data()};
  ordered_add(shares, DType::kFloat16, static_cast<std::int64_t>(bits.size()), output.data(),
              false);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const float expected = fp16_value(bits[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(output[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(output[i]), std::bit_cast<std::uint32_t>(expected))
          << i;
    }
  }
}

TEST(OrderedAdd, ReadsEveryBf16Value) {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> output(bits.size());
  const std::array<const void*, 1> shares{bits.data()};
  ordered_add(shares, DType::kBFloat16, static_cast<std::int64_t>(bits.size()), output.data(),
              false);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(output[i]), static_cast<std::uint32_t>(i) << 16);
  }
}

// The sender's rounding, the receiver's and that of the kernels are one.
TEST(OrderedAdd, RoundsAsTheKernelsDo) {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 1U << 16; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<std::uint16_t> rounded(values.size());
  round_share(values.data(), n, rounded.data());
  std::vector<float> read(values.size());
  const std::array<const void*, 1> shares{values.data()};
  ordered_add(shares, {DType::kFloat32, DType::kBFloat16}, n, read.data(), false);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(read[i]) && std::isnan(float_of_bf16(rounded[i]))) << i;
      continue;
    }
    ASSERT_EQ(rounded[i], bf16_bits(values[i])) << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(read[i]), std::uint32_t{rounded[i]} << 16) << values[i];
  }
}

TEST(OrderedAdd, AddsInOrderAndTheOutputLast) {
  // 2^24 swallows a 1 that is added alone, so each order has its own result.
  const float big = 0x1p24F;
  const std::array<float, 1> a{1};
  const std::array<float, 1> b{1};
  const std::array<float, 1> c{big};
  const auto sum = [](std::array<const void*, 3> shares, float start, bool accumulate) {
    float output = start;
    ordered_add(shares, DType::kFloat32, 1, &output, accumulate);
    return output;
  };
  EXPECT_EQ(sum({a.data(), b.data(), c.data()}, 7, false), big + 2);
  EXPECT_EQ(sum({c.data(), a.data(), b.data()}, 7, false), big);
  const std::array<float, 1> minus{-big};
  EXPECT_EQ(sum({minus.data(), c.data(), a.data()}, big, true), big);  // ((-b + b) + 1) + b
  EXPECT_EQ(sum({a.data(), minus.data(), c.data()}, 0.5F, true), 1.5F);
}

TEST(OrderedAdd, TheOutputMayBeAShare) {
  std::vector<float> a(5000, 1.25F);
  std::vector<float> b(5000, 2.5F);
  const std::array<const void*, 2> shares{a.data(), b.data()};
  ordered_add(shares, DType::kFloat32, 5000, b.data(), false);
  EXPECT_EQ(b, std::vector<float>(5000, 3.75F));
}

// Sums that are written past the caches are the same sums, also into memory that begins anywhere.
TEST(OrderedAdd, LargeSumsAreTheSame) {
  const auto elems = static_cast<std::size_t>(kStreamBytes / 4) + 4099;
  std::vector<std::vector<float>> inputs(3, std::vector<float>(elems));
  for (std::size_t i = 0; i < elems; ++i) {
    inputs[0][i] = static_cast<float>(i % 1013) * 0.37F;
    inputs[1][i] = 0x1p20F / static_cast<float>(i + 1);
    inputs[2][i] = -static_cast<float>(i % 7) * 1e3F;
  }
  for (const std::size_t ranks : {1U, 2U, 3U}) {
    for (const std::size_t begin : {0U, 1U, 3U}) {
      std::vector<const void*> shares;
      for (std::size_t r = 0; r < ranks; ++r) shares.push_back(inputs[r].data());
      std::vector<float> output(elems + 4, -1.0F);
      ordered_add(shares, DType::kFloat32, static_cast<std::int64_t>(elems), output.data() + begin,
                  false);
      for (std::size_t i = 0; i < elems; ++i) {
        float sum = inputs[0][i];
        for (std::size_t r = 1; r < ranks; ++r) sum += inputs[r][i];
        ASSERT_EQ(output[begin + i], sum) << ranks << " shares, element " << i;
      }
      EXPECT_EQ(output[begin + elems], -1.0F) << "wrote past the end";
    }
  }
}

TEST(StreamCopy, CopiesAnyNumberOfBytes) {
  std::vector<char> from(static_cast<std::size_t>(kStreamBytes) + 64);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31 % 127);
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{1}, kStreamBytes - 1, kStreamBytes, kStreamBytes + 61}) {
    std::vector<char> to(from.size() + 8, 'x');
    stream_copy(to.data() + 3, from.data() + 1, bytes);
    const auto end = static_cast<std::size_t>(bytes);
    EXPECT_TRUE(std::equal(to.begin() + 3, to.begin() + 3 + bytes, from.begin() + 1)) << bytes;
    EXPECT_EQ(to[2], 'x');
    EXPECT_EQ(to[end + 3], 'x') << "wrote past the end";
  }
}

}  // namespace
}  // namespace sluice
