// The largest magnitudes that kernels leave with the rows they write (cuda_runs.hpp): those of the
// rows, whose bits stay the same, and FP8 operands have the codes that a scan gives.
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/cpu/fp8_core.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

constexpr DType kBf16 = DType::kBFloat16;

Buffer maxima_of_rows() { return Buffer(Bytes(floats(kRows), std::byte{0xee})); }

// [kRows, columns] bf16 and what a kernel left with it.
struct Written {
  Buffer y, maxima;
  std::int64_t columns;
};

struct Codes {
  Bytes codes, inverse;
  bool operator==(const Codes&) const = default;
};

Codes codes_of(const Written& of, bool scans) {
  const Buffer codes(Bytes(static_cast<std::size_t>(kRows * of.columns)));
  const Buffer parts(cuda::kFp8PartBytes), inverse(sizeof(float));
  cuda::Fp8Operands all;
  all.count = 1;
  all.of[0] = {.x = of.y.data(), .rows = kRows, .columns = of.columns, .stride = of.columns};
  all.of[0].parts = data_of<std::uint32_t>(parts);
  all.of[0].row_maxima = scans ? nullptr : data_of<std::uint32_t>(of.maxima);
  all.of[0].codes = codes.data();
  all.of[0].inverse = numbers(inverse);
  run_fp8_quantise(all);
  return {codes.content(), inverse.content()};
}

// run(y, row_maxima) writes [kRows, columns] and, unless null, the rows' largest magnitudes.
using Run = std::function<void(void*, std::uint32_t*)>;

Written expect_maxima(std::int64_t columns, const Run& run) {
  const auto bytes = static_cast<std::size_t>(2 * kRows * columns);
  const Buffer y(bytes), plain(bytes);
  Written written{y, maxima_of_rows(), columns};
  run(plain.data(), nullptr);
  run(written.y.data(), data_of<std::uint32_t>(written.maxima));
  EXPECT_EQ(written.y.content(), plain.content());
  const std::vector<float> values = plain.values(kBf16);
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::uint32_t most = 0;
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      most = std::max(most, fp8::magnitude(values[static_cast<std::size_t>(i)]));
    }
    const std::uint32_t left = data_of<std::uint32_t>(written.maxima)[row];
    if (most <= fp8::kInfinity) {
      EXPECT_EQ(left, most) << "row " << row;
    } else {
      EXPECT_GT(left, fp8::kInfinity) << "row " << row;  // a NaN's payload is not kept
    }
  }
  EXPECT_EQ(codes_of(written, false), codes_of(written, true));
  return written;
}

// f(columns, x, dy): both [kRows, 2 columns].
void for_inputs(const std::function<void(std::int64_t, const Buffer&, const Buffer&)>& f) {
  for (const std::int64_t columns : {16, 64, 1600, 2048, 2576, 4608}) {
    SCOPED_TRACE(std::to_string(columns) + " columns");
    const Buffer x = random(kBf16, 2 * kRows * columns, 21, 3.0F);
    f(columns, x, random(kBf16, 2 * kRows * columns, 22, 1e-4F));
  }
}

TEST(CudaMaxima, OfActivationsAndTheirGradients) {
  for_inputs([](std::int64_t columns, const Buffer& x, const Buffer& dy) {
    expect_maxima(columns, [&](void* y, std::uint32_t* maxima) {
      run_gelu({y, x.data(), kBf16, columns, kRows, maxima});
    });
    expect_maxima(columns, [&](void* y, std::uint32_t* maxima) {
      run_swiglu({y, x.data(), kBf16, kRows, columns, maxima});
    });
    cuda::GeluGradient gelu{
        .x = x.data(), .dy = dy.data(), .dtype = kBf16, .width = columns, .rows = kRows};
    expect_maxima(columns, [&](void* dx, std::uint32_t* maxima) {
      gelu.dx = dx;
      gelu.row_maxima = maxima;
      run_gelu_gradient(gelu);
    });
    cuda::SwigluGradient swiglu{
        .gate_up = x.data(), .dy = dy.data(), .dtype = kBf16, .rows = kRows, .width = columns};
    expect_maxima(2 * columns, [&](void* to, std::uint32_t* maxima) {
      swiglu.d_gate_up = to;
      swiglu.row_maxima = maxima;
      run_swiglu_gradient(swiglu);
    });
  });
}

TEST(CudaMaxima, OfNorms) {
  for_inputs([](std::int64_t columns, const Buffer& x, const Buffer& dy) {
    const Buffer weight = random(kBf16, columns, 23), bias = random(kBf16, columns, 24);
    for (const bool centered : {true, false}) {
      LayerNormArgs norm{.x = x.data(),
                         .weight = weight.data(),
                         .bias = bias.data(),
                         .dtype = kBf16,
                         .rows = kRows,
                         .hidden = columns};
      expect_maxima(columns, [&](void* y, std::uint32_t* maxima) {
        run_norm_forward({norm, centered, maxima}, y);
      });
      const Buffer out(static_cast<std::size_t>(2 * kRows * columns));
      norm.x = out.data();
      expect_maxima(columns, [&](void* y, std::uint32_t* maxima) {
        run_branch_norm({.out = out.data(),
                         .x = x.data(),
                         .residual = dy.data(),
                         .dtype = kBf16,
                         .rows = kRows,
                         .columns = columns,
                         .mask = {}},
                        {norm, centered, maxima}, y);
      });
    }
  });
}

TEST(CudaMaxima, OfRowsThatAreNotFiniteMakeTheScaleNan) {
  constexpr std::int64_t kColumns = 64;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values = normal_values(kRows * kColumns, 25, 1.0F);
    values[5 * kColumns + 7] = bad;
    const Buffer x(as_bytes(values, kBf16)), weight = random(kBf16, kColumns, 26);
    const Written active = expect_maxima(kColumns, [&](void* y, std::uint32_t* maxima) {
      run_gelu({y, x.data(), kBf16, kColumns, kRows, maxima});
    });
    const LayerNormArgs norm{
        .x = x.data(), .weight = weight.data(), .dtype = kBf16, .rows = kRows, .hidden = kColumns};
    const Written normed = expect_maxima(kColumns, [&](void* y, std::uint32_t* maxima) {
      run_norm_forward({norm, false, maxima}, y);
    });
    for (const Written* of : {&active, &normed}) {
      float inverse = 0;
      std::memcpy(&inverse, codes_of(*of, false).inverse.data(), sizeof inverse);
      EXPECT_TRUE(std::isnan(inverse));
    }
  }
}

// 90.5 x 1.4140625 x 2^121 is a number in fp32 and infinity in bf16.
TEST(CudaMaxima, OfAResultThatRoundsToInfinity) {
  constexpr std::int64_t kColumns = 16;
  std::vector<float> values(kRows * 2 * kColumns, 1.0F);
  values[0] = 90.5F;
  values[kColumns] = std::ldexp(1.4140625F, 121);
  const Buffer gate_up(as_bytes(values, kBf16));
  const Written y = expect_maxima(kColumns, [&](void* to, std::uint32_t* maxima) {
    run_swiglu({to, gate_up.data(), kBf16, kRows, kColumns, maxima});
  });
  EXPECT_EQ(data_of<std::uint32_t>(y.maxima)[0], fp8::kInfinity);
}

}  // namespace
}  // namespace sluice::testing
