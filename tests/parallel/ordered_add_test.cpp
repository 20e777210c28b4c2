#include "parallel/comm/ordered_add.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

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

}  // namespace
}  // namespace sluice
