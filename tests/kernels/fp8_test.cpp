// FP8 against its definition: values from the fields of a code, rounding as a search over all
// values, in double.
#include "kernels/cpu/fp8.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "kernels/cpu/fp8_core.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

// Magnitude of code 0..126 with m mantissa bits, as the paper's table 1 defines it.
double value_of(int code, int m, int bias) {
  const int exponent = code >> m;
  const double fraction = std::ldexp(code & ((1 << m) - 1), -m);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
}

struct Table {
  Fp8Format format;
  int last;                    // the largest number's code
  std::vector<double> values;  // of codes 0..last, ascending

  Table(Fp8Format of, int mantissa, int bias, int largest) : format(of), last(largest) {
    for (int code = 0; code <= last; ++code) values.push_back(value_of(code, mantissa, bias));
  }
  [[nodiscard]] double largest() const { return values.back(); }
  // The code nearest to |x|, of two as near ones the even one; above the largest the largest.
  [[nodiscard]] int nearest(double x) const {
    x = std::min(std::abs(x), largest());
    int best = 0;
    for (int code = 1; code <= last; ++code) {
      const double gain = std::abs(nth(best) - x) - std::abs(nth(code) - x);
      if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
    }
    return best;
  }
  [[nodiscard]] double nth(int code) const { return values[static_cast<std::size_t>(code)]; }
};

const Table& e4m3() {
  static const Table table(Fp8Format::kE4M3, 3, 7, 0x7e);
  return table;
}
const Table& e5m2() {
  static const Table table(Fp8Format::kE5M2, 2, 15, 0x7b);
  return table;
}

template <class Format>
void check_codes(const Table& table) {
  EXPECT_EQ(fp8::float_of(Format::kLargest), static_cast<float>(table.largest()));
  for (int code = 0; code <= 0xff; ++code) {
    const int magnitude = code & 0x7f;
    const bool number = magnitude <= table.last;
    if (!number && magnitude != static_cast<int>(Format::kNan)) continue;  // encode() makes no such
    const float value = fp8::decode<Format>(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    EXPECT_EQ(fp8::encode<Format>(value), code);
    if (number) {
      EXPECT_EQ(std::abs(static_cast<double>(value)), table.nth(magnitude)) << code;
    } else {
      EXPECT_TRUE(std::isnan(value)) << code;
    }
  }
}

TEST(Fp8, EveryCodeHasItsValueAndComesBack) {
  EXPECT_EQ(e4m3().largest(), 448);
  EXPECT_EQ(e5m2().largest(), 57344);
  check_codes<fp8::E4M3>(e4m3());
  check_codes<fp8::E5M2>(e5m2());
}

// Every bf16, every value of the format, every middle of two values and the floats beside it.
std::vector<float> probes(const Table& table) {
  std::vector<float> all;
  for (std::uint32_t bits = 0; bits < 0x7f80U; ++bits) all.push_back(fp8::float_of(bits << 16));
  for (int code = 0; code < table.last; ++code) {
    const auto middle = static_cast<float>((table.nth(code) + table.nth(code + 1)) / 2);
    for (const float x : {static_cast<float>(table.nth(code)), middle, std::nextafter(middle, 0.0F),
                          std::nextafter(middle, kInf)}) {
      all.push_back(x);
    }
  }
  return all;
}

template <class Format>
void check_rounding(const Table& table) {
  for (const float x : probes(table)) {
    const int want = table.nearest(static_cast<double>(x));
    ASSERT_EQ(fp8::encode<Format>(x), want) << x;
    ASSERT_EQ(fp8::encode<Format>(-x), want | 0x80) << x;
  }
  EXPECT_EQ(fp8::encode<Format>(kInf),
            table.last);  // saturates; a scale lets no infinity come here
  EXPECT_TRUE(std::isnan(fp8::decode<Format>(fp8::encode<Format>(kNan))));
}

TEST(Fp8, RoundsToTheNearestValue) {
  check_rounding<fp8::E4M3>(e4m3());
  check_rounding<fp8::E5M2>(e5m2());
}

// The largest power of two that keeps amax in range, but no more than 2^100; and its reciprocal.
template <class Format>
void check_scales(const Table& table) {
  for (std::uint32_t bits = 1; bits < 0x7f80U; ++bits) {
    const float amax = fp8::float_of(bits << 16);
    const double scale = fp8::scale_of<Format>(bits << 16);
    int exponent = 0;
    ASSERT_EQ(std::frexp(scale, &exponent), 0.5) << amax;
    ASSERT_LE(amax * scale, table.largest()) << amax;
    ASSERT_TRUE(2 * amax * scale > table.largest() || scale == std::ldexp(1.0, 100)) << amax;
    ASSERT_EQ(scale * fp8::inverse_scale_of<Format>(bits << 16), 1) << amax;
  }
  EXPECT_EQ(fp8::scale_of<Format>(0), 1);
  for (const float bad : {kInf, kNan}) {
    EXPECT_TRUE(std::isnan(fp8::scale_of<Format>(fp8::magnitude(bad))));
    EXPECT_TRUE(std::isnan(fp8::inverse_scale_of<Format>(fp8::magnitude(bad))));
  }
}

TEST(Fp8, ScalesArePowersOfTwo) {
  check_scales<fp8::E4M3>(e4m3());
  check_scales<fp8::E5M2>(e5m2());
}

struct Matrix {
  std::int64_t rows, columns, row_stride;
  std::vector<std::uint16_t> bits;  // with what lies between rows

  [[nodiscard]] Bf16Matrix view() const { return {bits.data(), rows, columns, row_stride}; }
  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const {
    return float_of_bf16(bits[static_cast<std::size_t>(row * row_stride + column)]);
  }
};

// Columns of a wider matrix; what is not part of it is infinite.
Matrix matrix(std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
              const std::vector<float>& values) {
  Matrix result{rows, columns, row_stride, {}};
  result.bits.assign(static_cast<std::size_t>(rows * row_stride), bf16_bits(kInf));
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    result.bits[static_cast<std::size_t>(i / columns * row_stride + i % columns)] =
        bf16_bits(values[static_cast<std::size_t>(i)]);
  }
  return result;
}

std::vector<std::uint16_t> rounded_matrix(const Matrix& x, Fp8Format format) {
  std::vector<std::uint16_t> out(static_cast<std::size_t>(x.rows * x.columns), 0xffffU);
  round_to_fp8(out.data(), x.view(), format);
  return out;
}

void expect_rounded(const Matrix& x, const Table& table) {
  double amax = 0;
  for (std::int64_t i = 0; i < x.rows * x.columns; ++i) {
    amax = std::max(amax, std::abs(static_cast<double>(x.at(i / x.columns, i % x.columns))));
  }
  double scale = 1;
  if (amax > 0) {
    while (amax * scale > table.largest()) scale /= 2;
    while (2 * amax * scale <= table.largest() && scale < std::ldexp(1.0, 100)) scale *= 2;
  }
  const std::vector<std::uint16_t> ours = rounded_matrix(x, table.format);
  std::map<float, double> known;  // few values: a search each would take long
  for (std::int64_t i = 0; i < x.rows * x.columns; ++i) {
    const float from = x.at(i / x.columns, i % x.columns);
    const auto [place, added] = known.try_emplace(std::abs(from), 0);
    if (added) place->second = table.nth(table.nearest(from * scale)) / scale;
    const float got = float_of_bf16(ours[static_cast<std::size_t>(i)]);
    ASSERT_EQ(std::abs(static_cast<double>(got)), place->second) << from << " of " << amax;
    ASSERT_EQ(std::signbit(got), std::signbit(from)) << from;
  }
}

TEST(Fp8, MatricesHaveTheValuesOfTheirOwnScale) {
  for (const Table* table : {&e4m3(), &e5m2()}) {
    for (const float largest : {1e-38F, 1e-12F, 3e-4F, 0.875F, 1.0F, 448.0F, 6e4F, 1e30F}) {
      for (const auto& [rows, columns, stride] :
           {std::array<std::int64_t, 3>{1, 1, 1}, {7, 33, 61}, {130, 515, 515}}) {
        std::vector<float> values = normal_values(rows * columns, 5);
        for (float& v : values) v *= largest / 5;
        values.back() = -largest;
        values.front() = rows * columns > 1 ? 0.0F : values.front();
        expect_rounded(matrix(rows, columns, stride, values), *table);
      }
    }
    expect_rounded(matrix(3, 5, 5, std::vector<float>(15, 0.0F)), *table);
  }
}

TEST(Fp8, OneElementThatIsNotFiniteMakesAllNan) {
  for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
    for (const float bad : {kInf, -kInf, kNan}) {
      std::vector<float> values = normal_values(9 * 40, 2);
      values[171] = bad;
      for (const std::uint16_t bits : rounded_matrix(matrix(9, 40, 48, values), format)) {
        ASSERT_TRUE(std::isnan(float_of_bf16(bits)));
      }
    }
  }
}

TEST(Fp8, BitsDependOnNeitherThreadsNorFlushToZero) {
  const Matrix x = matrix(300, 700, 701, normal_values(300 * 700, 3, 1e-38F));
  for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
    const std::vector<std::uint16_t> plain = rounded_matrix(x, format);
    expect_same_bits_everywhere([&] { return rounded_matrix(x, format); });
    std::thread([&] {
      enable_flush_to_zero();
      EXPECT_EQ(rounded_matrix(x, format), plain);
    }).join();
  }
}

TEST(Fp8, RefusesRowsThatOverlap) {
  std::uint16_t cell = 0;
  EXPECT_THROW(round_to_fp8(&cell, {&cell, 2, 2, 1}, Fp8Format::kE4M3), Error);
  EXPECT_THROW(round_to_fp8(nullptr, {&cell, 1, 1, 1}, Fp8Format::kE4M3), Error);
  round_to_fp8(nullptr, {}, Fp8Format::kE4M3);
}

}  // namespace
}  // namespace sluice::testing
