// The CUDA kernels of FP8 operands (cuda_runs.hpp): scales, and codes in both layouts, against
// kernels/cpu/fp8_core.hpp element by element.
#include <bit>
#include <limits>

#include "kernels/cpu/fp8_core.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

using cuda::Fp8Operand;

struct Matrix {
  std::int64_t rows, columns, stride;
};
// Whole tiles, single rows, rests of tiles and of runs, and columns of a wider matrix.
constexpr std::array<Matrix, 7> kMatrices{{{128, 64, 64},
                                           {1, 16, 16},
                                           {1000, 48, 48},
                                           {77, 80, 240},
                                           {15, 1600, 1600},
                                           {129, 208, 224},
                                           {300, 16, 64}}};
constexpr std::uint16_t kBehind = 0x7f80;  // infinity: between the rows, where nothing may be read

std::vector<std::uint16_t> halves(const Buffer& buffer) {
  std::vector<std::uint16_t> result(buffer.content().size() / 2);
  std::memcpy(result.data(), buffer.data(), 2 * result.size());
  return result;
}

float value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

Buffer matrix_of(const Matrix& shape, float std) {
  Buffer x = random(DType::kBFloat16, shape.rows * shape.stride, 11, std);
  auto* bits = static_cast<std::uint16_t*>(x.data());
  for (std::int64_t i = 0; i < shape.rows * shape.stride; ++i) {
    if (i % shape.stride >= shape.columns) bits[i] = kBehind;
  }
  return x;
}

std::uint32_t amax_of(const Matrix& shape, const Buffer& x) {
  std::uint32_t most = 0;
  const std::vector<std::uint16_t> bits = halves(x);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const auto i = static_cast<std::size_t>(row * shape.stride + column);
      most = std::max(most, fp8::magnitude(value(bits[i])));
    }
  }
  return most;
}

// An operand without results.
Fp8Operand operand_of(const Matrix& shape, const Buffer& x) {
  Fp8Operand a;
  a.x = x.data();
  a.rows = shape.rows;
  a.columns = shape.columns;
  a.stride = shape.stride;
  return a;
}

struct Scale {
  std::uint32_t amax;  // of all parts
  float inverse;
};

Scale quantise(Fp8Operand a) {
  const Buffer parts(cuda::kFp8Parts * sizeof(std::uint32_t)), inverse(sizeof(float));
  a.parts = data_of<std::uint32_t>(parts);
  a.inverse = numbers(inverse);
  cuda::Fp8Operands all;
  all.of[0] = a;
  all.count = 1;
  run_fp8_quantise(all);
  return {*std::max_element(a.parts, a.parts + cuda::kFp8Parts), numbers(inverse)[0]};
}

struct Layouts {
  bool codes, turned;
};

// The codes of the core, in one layout.
template <class Format>
Bytes codes_of(const Matrix& shape, const Buffer& x, float scale, bool turned) {
  const std::int64_t length = turned ? (shape.rows + 15) / 16 * 16 : shape.columns;
  const std::int64_t lines = turned ? shape.columns : shape.rows;
  Bytes codes(static_cast<std::size_t>(lines * length), std::byte{0});
  const std::vector<std::uint16_t> bits = halves(x);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const std::int64_t at = turned ? column * length + row : row * length + column;
      const float of = value(bits[static_cast<std::size_t>(row * shape.stride + column)]);
      codes[static_cast<std::size_t>(at)] = std::byte{fp8::encode<Format>(of * scale)};
    }
  }
  return codes;
}

template <class Format>
void expect_codes(const Matrix& shape, const Layouts& layouts, float std) {
  const Buffer x = matrix_of(shape, std);
  const std::uint32_t amax = amax_of(shape, x);
  const float scale = fp8::scale_of<Format>(amax);
  const Bytes want = codes_of<Format>(shape, x, scale, false);
  const Bytes want_turned = codes_of<Format>(shape, x, scale, true);
  const Buffer codes(Bytes(want.size(), std::byte{0xee}));
  const Buffer turned(Bytes(want_turned.size(), std::byte{0xee}));
  Fp8Operand a = operand_of(shape, x);
  a.format = Format::kMantissa == 3 ? Fp8Format::kE4M3 : Fp8Format::kE5M2;
  a.codes = layouts.codes ? codes.data() : nullptr;
  a.turned = layouts.turned ? turned.data() : nullptr;
  const Scale got = quantise(a);
  ASSERT_EQ(got.amax, amax);
  ASSERT_EQ(got.inverse, fp8::inverse_scale_of<Format>(amax));
  const Bytes untouched(want.size(), std::byte{0xee});
  EXPECT_EQ(codes.content(), layouts.codes ? want : untouched);
  if (layouts.turned) {
    EXPECT_EQ(turned.content(), want_turned);
  }
}

TEST(CudaFp8Bodies, CodesAreThoseOfTheCpuInBothLayouts) {
  for (const Matrix& shape : kMatrices) {
    for (const Layouts& layouts : {Layouts{true, false}, {false, true}, {true, true}}) {
      SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.columns) + " of " +
                   std::to_string(shape.stride) + (layouts.turned ? ", turned" : ""));
      expect_codes<fp8::E4M3>(shape, layouts, 1.0F);
      expect_codes<fp8::E5M2>(shape, layouts, 1.0F);
    }
  }
}

TEST(CudaFp8Bodies, SmallAndLargeValuesHaveTheirOwnScale) {
  for (const float std : {3e-6F, 2e4F}) {
    expect_codes<fp8::E4M3>(kMatrices[3], {true, true}, std);
    expect_codes<fp8::E5M2>(kMatrices[3], {true, false}, std);
  }
}

TEST(CudaFp8Bodies, InfinityAndNanAreAboveEveryNumber) {
  const Matrix shape{33, 32, 32};
  for (const std::uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0xffc1}) {
    const Buffer x = matrix_of(shape, 1.0F);
    static_cast<std::uint16_t*>(x.data())[700] = bad;
    const Buffer codes(Bytes(33 * 32));
    Fp8Operand a = operand_of(shape, x);
    a.codes = codes.data();
    const Scale got = quantise(a);
    EXPECT_EQ(got.amax, std::uint32_t{bad & 0x7fffU} << 16);
    EXPECT_TRUE(std::isnan(got.inverse));
  }
}

}  // namespace
}  // namespace sluice::testing
