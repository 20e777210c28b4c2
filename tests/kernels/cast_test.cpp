#include "kernels/cpu/cast.hpp"

#include "base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

// Independent oracle: value of 16 bits with e exponent bits, in double.
double value_of(std::uint32_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double fraction = bits & ((1U << mantissa_bits) - 1U);
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa_bits);
  return sign *
         std::ldexp(fraction + std::ldexp(1.0, mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  DType dtype;
  int exponent_bits;
};
const Format kFormats[] = {{DType::kBFloat16, 8}, {DType::kFloat16, 5}};

TEST(Cast, AllSixteenBitPatternsWidenExactlyAndComeBack) {
  std::vector<std::uint16_t> bits(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
  for (const Format format : kFormats) {
    on_every_setting([&] {
      std::vector<float> wide(65536);
      std::vector<std::uint16_t> back(65536);
      convert(wide.data(), DType::kFloat32, bits.data(), format.dtype, 65536);
      convert(back.data(), format.dtype, wide.data(), DType::kFloat32, 65536);
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const double expected = value_of(i, format.exponent_bits);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(wide[i])) << i;
          ASSERT_TRUE(std::isnan(value_of(back[i], format.exponent_bits))) << i;
        } else {
          ASSERT_EQ(static_cast<double>(wide[i]), expected) << i;
          ASSERT_EQ(std::signbit(wide[i]), (i & 0x8000U) != 0) << i;
          ASSERT_EQ(back[i], i);
        }
      }
    });
  }
}

// Between any two neighbours: below the middle goes down, above up, the middle to the even one.
TEST(Cast, NarrowingRoundsToNearestEven) {
  for (const Format format : kFormats) {
    std::vector<float> inputs;
    std::vector<std::uint16_t> expected;
    const std::uint32_t largest = format.dtype == DType::kBFloat16 ? 0x7f7fU : 0x7bffU;
    for (std::uint32_t i = 0; i < largest; ++i) {
      const double low = value_of(i, format.exponent_bits);
      const double high = value_of(i + 1, format.exponent_bits);
      const auto middle = static_cast<float>((low + high) / 2);
      const std::uint32_t choices[] = {i, (i & 1U) != 0 ? i + 1 : i, i + 1};
      const float values[] = {std::nextafter(middle, 0.0F), middle, std::nextafter(middle, kInf)};
      for (int k = 0; k < 3; ++k) {
        inputs.push_back(values[k]);
        expected.push_back(static_cast<std::uint16_t>(choices[k]));
        inputs.push_back(-values[k]);
        expected.push_back(static_cast<std::uint16_t>(choices[k] | 0x8000U));
      }
    }
    on_every_setting([&] {
      std::vector<std::uint16_t> result(inputs.size());
      convert(result.data(), format.dtype, inputs.data(), DType::kFloat32,
              static_cast<std::int64_t>(inputs.size()));
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        ASSERT_EQ(result[i], expected[i]) << inputs[i];
      }
    });
  }
}

TEST(Cast, OverflowGoesToInfinityAndNanStaysNan) {
  EXPECT_EQ(fp16_bits(65519.996F), 0x7bffU);
  EXPECT_EQ(fp16_bits(65520.0F), 0x7c00U);
  EXPECT_EQ(fp16_bits(-1e30F), 0xfc00U);
  EXPECT_EQ(bf16_bits(std::numeric_limits<float>::max()), 0x7f80U);
  EXPECT_EQ(bf16_bits(-kInf), 0xff80U);
  // Payload in the low bits only: cutting them off would leave an infinity.
  const float low_payload = std::bit_cast<float>(0x7f800001U);
  EXPECT_TRUE(std::isnan(float_of_bf16(bf16_bits(low_payload))));
  EXPECT_TRUE(std::isnan(float_of_fp16(fp16_bits(low_payload))));
}

TEST(Cast, SubnormalsSurviveFlushToZero) {
  std::vector<std::uint16_t> plain(2046);
  std::vector<std::uint16_t> flushed(2046);
  std::vector<float> values(2046);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i) * 0x1p-25F;  // fp16 subnormals and the middles between them
  }
  for (const Isa isa : isas_here()) {
    const KernelTable& table = *table_for(isa);
    table.convert(plain.data(), DType::kFloat16, values.data(), DType::kFloat32, 2046);
    std::vector<float> wide(2046);
    std::thread([&] {
      enable_flush_to_zero();
      table.convert(flushed.data(), DType::kFloat16, values.data(), DType::kFloat32, 2046);
      table.convert(wide.data(), DType::kFloat32, flushed.data(), DType::kFloat16, 2046);
    }).join();
    EXPECT_EQ(plain, flushed) << table.name;
    EXPECT_EQ(wide[2], 0x1p-24F) << table.name;
  }
}

TEST(Cast, EveryPairOfDTypesOnEverySettingAndCut) {
  for (const std::int64_t n : kSizes) {
    const std::vector<float> values = wild_values(n, 7);
    for (const DType from : kDTypes) {
      const std::vector<std::byte> source = as_bytes(values, from);
      for (const DType to : kDTypes) {
        expect_same_bits_everywhere([&] {
          std::vector<std::byte> out(static_cast<std::size_t>(n * size_of(to)));
          const std::int64_t cut = n / 3;
          convert(out.data(), to, source.data(), from, cut);
          convert(out.data() + cut * size_of(to), to, source.data() + cut * size_of(from), from,
                  n - cut);
          std::vector<std::byte> whole(out.size());
          convert(whole.data(), to, source.data(), from, n);
          EXPECT_EQ(out, whole);
          return whole;
        });
      }
    }
  }
}

TEST(Cast, AddToStoresAndAccumulates) {
  for (const std::int64_t n : kSizes) {
    const std::vector<float> x = normal_values(n, 1);
    const std::vector<float> start = normal_values(n, 2);
    for (const DType dtype : kDTypes) {
      const std::vector<std::byte> source = as_bytes(x, dtype);
      expect_same_bits_everywhere([&] {
        std::vector<float> acc(static_cast<std::size_t>(n), kNan);
        add_to(acc.data(), source.data(), dtype, n, false);
        for (std::size_t i = 0; i < acc.size(); ++i) EXPECT_EQ(acc[i], rounded(x[i], dtype));
        acc = start;
        add_to(acc.data(), source.data(), dtype, n, true);
        for (std::size_t i = 0; i < acc.size(); ++i) {
          EXPECT_EQ(acc[i], start[i] + rounded(x[i], dtype));
        }
        return acc;
      });
    }
  }
}

TEST(Cast, OrderedSumAddsInTheOrderGiven) {
  for (const std::int64_t n : kSizes) {
    const std::vector<float> start = normal_values(n, 9);
    for (const DType dtype : kDTypes) {
      std::vector<std::vector<float>> values;
      std::vector<std::vector<std::byte>> buffers;
      for (const unsigned k : {2U, 0U, 3U, 1U}) {
        values.push_back(normal_values(n, k));
        buffers.push_back(as_bytes(values.back(), dtype));
        for (float& value : values.back()) value = rounded(value, dtype);
      }
      const void* inputs[] = {buffers[0].data(), buffers[1].data(), buffers[2].data(),
                              buffers[3].data()};
      for (const bool accumulate : {false, true}) {
        std::vector<float> want;
        for (std::size_t i = 0; i < start.size(); ++i) {
          const float sum = ((values[0][i] + values[1][i]) + values[2][i]) + values[3][i];
          want.push_back(accumulate ? start[i] + sum : sum);
        }
        on_every_setting([&] {
          std::vector<float> out = start;
          ordered_sum(out.data(), inputs, dtype, n, accumulate);
          EXPECT_EQ(out, want);
        });
      }
    }
  }
}

TEST(Cast, MisuseIsNamed) {
  float x = 0.0F;
  EXPECT_THROW(ordered_sum(&x, {}, DType::kFloat32, 1, false), Error);
  EXPECT_THROW(convert(&x, DType::kFloat32, nullptr, DType::kBFloat16, 1), Error);
  EXPECT_THROW(scale(&x, -1, 2.0F), Error);
  EXPECT_NO_THROW(convert(nullptr, DType::kFloat32, nullptr, DType::kBFloat16, 0));
}

}  // namespace
}  // namespace sluice::testing
