// The CUDA kernels of norms (cuda_runs.hpp) against fp64, and bit for bit against the CPU's kernels
// where block_launch.hpp promises bits.
#include "kernels/cpu/layer_norm.hpp"
#include "kernels/cpu/rms_norm.hpp"
#include "tests/kernels/cuda_bodies.hpp"

namespace sluice::testing {
namespace {

// The buffers of a norm of kRows rows, with statistics of the CPU's forward.
struct NormCase {
  explicit NormCase(const Shape& shape)
      : x(random(shape.dtype, kRows * shape.width, 10, 2.0F)),
        weight(random(shape.dtype, shape.width, 11)),
        bias(random(shape.dtype, shape.width, 12)),
        dy(random(shape.dtype, kRows * shape.width, 13)),
        residual(random(shape.dtype, kRows * shape.width, 14)),
        mean(floats(kRows)),
        rstd(floats(kRows)),
        y(x),
        args{x.data(),    weight.data(), bias.data(), numbers(mean), numbers(rstd),
             shape.dtype, kRows,         shape.width, 1e-5} {}

  [[nodiscard]] RmsNormArgs rms() const {
    return {args.x, args.weight, args.rstd, args.dtype, args.rows, args.hidden, args.eps};
  }

  Buffer x, weight, bias, dy, residual, mean, rstd, y;
  LayerNormArgs args;
};

// Rounding of a result of size `size` in dtype, and of fp32 sums.
double tolerance(DType dtype, double size) {
  const double rounding = dtype == DType::kFloat32 ? 4e-6 : dtype == DType::kBFloat16 ? 4e-3 : 5e-4;
  return rounding * (1 + std::abs(size));
}

struct Statistics {
  double mean = 0, rstd = 0;
};
Statistics statistics_of(const float* x, std::int64_t n, bool centered, double eps) {
  Statistics s;
  for (std::int64_t i = 0; i < n && centered; ++i) s.mean += x[i] / static_cast<double>(n);
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - s.mean) * (x[i] - s.mean);
  s.rstd = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
  return s;
}

void expect_forward(bool centered) {
  for_shapes([&](const Shape& shape) {
    const NormCase c(shape);
    run_norm_forward({c.args, centered}, c.y.data());
    const std::vector<float> x = c.x.values(shape.dtype), y = c.y.values(shape.dtype);
    const std::vector<float> w = c.weight.values(shape.dtype), b = c.bias.values(shape.dtype);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const Statistics s =
          statistics_of(x.data() + row * shape.width, shape.width, centered, c.args.eps);
      if (centered) {
        EXPECT_NEAR(numbers(c.mean)[row], s.mean, 1e-6);
      }
      EXPECT_NEAR(numbers(c.rstd)[row], s.rstd, 2e-6 * s.rstd);
      for (std::int64_t i = 0; i < shape.width; ++i) {
        const auto at = static_cast<std::size_t>(row * shape.width + i);
        const auto column = static_cast<std::size_t>(i);
        const double want = (x[at] - s.mean) * s.rstd * w[column] + (centered ? b[column] : 0.0F);
        ASSERT_NEAR(y[at], want, tolerance(shape.dtype, want)) << row << ", " << i;
      }
    }
  });
}

TEST(CudaNormBodies, LayerNormForwardAgreesWithDoubles) { expect_forward(true); }
TEST(CudaNormBodies, RmsNormForwardAgreesWithDoubles) { expect_forward(false); }

// dx of one row in doubles.
std::vector<double> row_gradient(const NormCase& c, const Shape& shape, std::int64_t row,
                                 bool centered) {
  const auto n = static_cast<std::size_t>(shape.width);
  const std::vector<float> x = c.x.values(shape.dtype), dy = c.dy.values(shape.dtype);
  const std::vector<float> w = c.weight.values(shape.dtype), r = c.residual.values(shape.dtype);
  const std::size_t at = static_cast<std::size_t>(row) * n;
  const Statistics s = statistics_of(x.data() + at, shape.width, centered, c.args.eps);
  double mean_g = 0, mean_gz = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(dy[at + i]) * w[i];
    mean_g += g / static_cast<double>(n);
    mean_gz += g * (x[at + i] - s.mean) * s.rstd / static_cast<double>(n);
  }
  std::vector<double> dx;
  for (std::size_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(dy[at + i]) * w[i];
    const double z = (x[at + i] - s.mean) * s.rstd;
    dx.push_back(r[at + i] + s.rstd * (g - (centered ? mean_g : 0) - z * mean_gz));
  }
  return dx;
}

void expect_input_gradient(bool centered) {
  for_shapes([&](const Shape& shape) {
    const NormCase c(shape);
    const Buffer dx = c.dy;  // in the place of dy
    run_norm_forward({c.args, centered}, c.y.data());
    run_norm_input_gradient({c.args, centered}, {dx.data(), dx.data(), c.residual.data()});
    const std::vector<float> got = dx.values(shape.dtype);
    for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 1}) {
      const std::vector<double> want = row_gradient(c, shape, row, centered);
      for (std::int64_t i = 0; i < shape.width; ++i) {
        const double wanted = want[static_cast<std::size_t>(i)];
        ASSERT_NEAR(got[static_cast<std::size_t>(row * shape.width + i)], wanted,
                    2 * tolerance(shape.dtype, wanted))
            << row << ", " << i;
      }
    }
  });
}

TEST(CudaNormBodies, LayerNormInputGradientAgreesWithDoubles) { expect_input_gradient(true); }
TEST(CudaNormBodies, RmsNormInputGradientAgreesWithDoubles) { expect_input_gradient(false); }

TEST(CudaNormBodies, NormWithoutResidualOrStatistics) {
  const Shape shape{DType::kFloat32, 64};
  NormCase c(shape);
  const Buffer with = c.y, without = c.dy;
  run_norm_forward({c.args}, with.data());
  run_norm_input_gradient({c.args}, {without.data(), without.data(), nullptr});
  const std::vector<double> all = row_gradient(c, shape, 0, true);
  EXPECT_NEAR(numbers(without)[3], all[3] - numbers(c.residual)[3], 1e-4);
  c.args.mean = c.args.rstd = nullptr;
  const Buffer again = c.x;  // y is x
  c.args.x = again.data();
  run_norm_forward({c.args}, again.data());
  EXPECT_EQ(again.content(), with.content());
}

// A branch's end and the norm of its result: the bits of one after the other. A sample begins
// `late` elements behind the beginning of a row.
void expect_branch_and_norm(bool centered, std::int64_t late) {
  for_shapes([&](const Shape& shape) {
    const NormCase c(shape);
    const Buffer apart(c.x), together(c.x), want(c.y), got(c.y);
    const Buffer mean(floats(kRows)), rstd(floats(kRows));
    cuda::BranchArgs branch{.out = apart.data(),
                            .x = apart.data(),
                            .bias = c.bias.data(),
                            .residual = c.residual.data(),
                            .dtype = shape.dtype,
                            .rows = kRows,
                            .columns = shape.width,
                            .mask = {.threshold = 1ULL << 30,
                                     .keep = 4.0F / 3,
                                     .seed = 3,
                                     .per_sample = 7 * shape.width + late,
                                     .offset = 8}};
    LayerNormArgs norm = c.args;
    norm.x = apart.data();
    run_branch(branch);
    run_norm_forward({norm, centered}, want.data());
    norm.x = branch.out = together.data();
    branch.x = together.data();
    norm.mean = numbers(mean);
    norm.rstd = numbers(rstd);
    run_branch_norm(branch, {norm, centered}, got.data());
    EXPECT_NE(together.content(), c.x.content());
    EXPECT_EQ(together.content(), apart.content());
    EXPECT_EQ(got.content(), want.content());
    EXPECT_EQ(rstd.content(), c.rstd.content());
    if (centered) {
      EXPECT_EQ(mean.content(), c.mean.content());
    }
  });
}

TEST(CudaNormBodies, LayerNormBehindABranchHasItsOwnBits) { expect_branch_and_norm(true, 0); }
TEST(CudaNormBodies, RmsNormBehindABranchHasItsOwnBits) { expect_branch_and_norm(false, 0); }
TEST(CudaNormBodies, NormBehindABranchOfSamplesThatEndInARow) { expect_branch_and_norm(true, 3); }

// Given the CPU's statistics.
void expect_weight_gradient(bool centered) {
  for_shapes([&](const Shape& shape) {
    const NormCase c(shape);
    const Buffer want_w = random(DType::kFloat32, shape.width, 15);
    const Buffer want_b = random(DType::kFloat32, shape.width, 16);
    const Buffer got_w = random(DType::kFloat32, shape.width, 15);
    const Buffer got_b = random(DType::kFloat32, shape.width, 16);
    if (centered) {
      layer_norm_forward(c.args, c.y.data());
      layer_norm_weight_gradient(c.args, numbers(want_w), numbers(want_b), c.dy.data(), true,
                                 false);
    } else {
      rms_norm_forward(c.rms(), c.y.data());
      rms_norm_weight_gradient(c.rms(), numbers(want_w), c.dy.data(), true);
    }
    const std::int64_t blocks = cuda::sum_blocks(kRows), each = blocks * shape.width;
    const Buffer parts(floats(centered ? 2 * each : each));
    const cuda::NormParts to{c.dy.data(), numbers(parts)};
    run_norm_parts({c.args, centered}, to);
    const std::array<cuda::ColumnTotal, 2> sums{
        {{numbers(got_w), to.parts, blocks, shape.width, true},
         {numbers(got_b), to.parts + each, blocks, shape.width, false}}};
    run_column_totals(sums.data(), centered ? 2 : 1);
    EXPECT_EQ(got_w.content(), want_w.content());
    EXPECT_EQ(got_b.content(), want_b.content());
  });
}

TEST(CudaNormBodies, LayerNormWeightGradientHasTheBitsOfTheCpu) { expect_weight_gradient(true); }
TEST(CudaNormBodies, RmsNormWeightGradientHasTheBitsOfTheCpu) { expect_weight_gradient(false); }

}  // namespace
}  // namespace sluice::testing
