#include "kernels/cpu/layer_norm.hpp"

#include <span>

#include "base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

struct Shape {
  std::int64_t rows, hidden;
};
// Tails of columns and of blocks of rows; enough rows for several pieces.
const Shape kShapes[] = {{1, 1}, {3, 15}, {33, 17}, {100, 64}, {70, 1030}};

struct Case {
  Case(const Shape& s, DType type)
      : rows(s.rows),
        hidden(s.hidden),
        dtype(type),
        x(values(rows * hidden, 1, 3.0F)),
        dy(values(rows * hidden, 2, 1.0F)),
        residual(values(rows * hidden, 3, 1.0F)),
        weight(values(hidden, 4, 1.0F)),
        bias(values(hidden, 5, 1.0F)) {}

  std::vector<float> values(std::int64_t n, unsigned seed, float std) const {
    std::vector<float> result = normal_values(n, seed, std);
    for (float& v : result) v = rounded(v + 0.5F, dtype);
    return result;
  }

  std::int64_t rows, hidden;
  DType dtype;
  std::vector<float> x, dy, residual, weight, bias;
};

struct Oracle {
  explicit Oracle(const Case& c)
      : y(c.x.size()), dx(c.x.size()), d_weight(c.weight.size()), d_bias(c.weight.size()) {
    const auto n = static_cast<double>(c.hidden);
    const auto width = static_cast<std::size_t>(c.hidden);
    for (std::size_t row = 0; row < static_cast<std::size_t>(c.rows); ++row) {
      const std::span<const float> x = std::span(c.x).subspan(row * width, width);
      double mean = 0, variance = 0, g_mean = 0, gz_mean = 0;
      for (const float v : x) mean += v / n;
      for (const float v : x) variance += (v - mean) * (v - mean) / n;
      const double rstd = 1 / std::sqrt(variance + 1e-5);
      for (std::size_t i = 0; i < width; ++i) {
        const double z = (x[i] - mean) * rstd;
        const double g = c.dy[row * width + i];
        y[row * width + i] = z * c.weight[i] + c.bias[i];
        d_weight[i] += g * z;
        d_bias[i] += g;
        g_mean += g * c.weight[i] / n;
        gz_mean += g * c.weight[i] * z / n;
      }
      for (std::size_t i = 0; i < width; ++i) {
        const double z = (x[i] - mean) * rstd;
        const double g = c.dy[row * width + i] * static_cast<double>(c.weight[i]);
        dx[row * width + i] = c.residual[row * width + i] + rstd * (g - g_mean - z * gz_mean);
      }
    }
  }
  std::vector<double> y, dx, d_weight, d_bias;
};

std::vector<float> as_floats(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> result(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  convert(result.data(), DType::kFloat32, bytes.data(), dtype,
          static_cast<std::int64_t>(result.size()));
  return result;
}

// `unit`: the dtype's rounding, relative.
void expect_near(const std::vector<float>& got, const std::vector<double>& want, double unit) {
  double scale = 0;
  for (const double v : want) scale = std::max(scale, std::abs(v));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], unit * std::abs(want[i]) + 3e-6 * (scale + 1)) << i;
  }
}

double unit_of(DType dtype) {
  return dtype == DType::kFloat32 ? 0 : dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

// Output, then the gradients; also in place. `before`: what the weight's gradient had.
std::vector<float> run(const Case& c, float before) {
  const std::vector<std::byte> x = as_bytes(c.x, c.dtype);
  const std::vector<std::byte> dy = as_bytes(c.dy, c.dtype);
  const std::vector<std::byte> weight = as_bytes(c.weight, c.dtype);
  const std::vector<std::byte> bias = as_bytes(c.bias, c.dtype);
  std::vector<std::byte> dx = as_bytes(c.residual, c.dtype);
  std::vector<std::byte> y = x;
  std::vector<float> mean(static_cast<std::size_t>(c.rows));
  std::vector<float> rstd = mean;
  LayerNormArgs args{.x = y.data(),
                     .weight = weight.data(),
                     .bias = bias.data(),
                     .mean = mean.data(),
                     .rstd = rstd.data(),
                     .dtype = c.dtype,
                     .rows = c.rows,
                     .hidden = c.hidden};
  layer_norm_forward(args, y.data());
  args.x = x.data();
  std::vector<float> d_weight(c.weight.size(), before);
  std::vector<float> d_bias(c.weight.size(), kNan);
  layer_norm_weight_gradient(args, d_weight.data(), d_bias.data(), dy.data(), true, false);
  layer_norm_input_gradient(args, dx.data(), dy.data(), dx.data());
  std::vector<float> all = as_floats(y, c.dtype);
  for (const std::vector<float>& part : {as_floats(dx, c.dtype), d_weight, d_bias}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(LayerNorm, MatchesDoubleOnEverySetting) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kDTypes) {
      const Case c(shape, dtype);
      Oracle want(c);
      for (double& v : want.d_weight) v += 2;
      expect_same_bits_everywhere([&] {
        const std::vector<float> all = run(c, 2.0F);
        const auto n = static_cast<std::ptrdiff_t>(c.x.size());
        const auto h = static_cast<std::ptrdiff_t>(c.hidden);
        const auto at = all.begin();
        if (c.hidden > 1) {  // one column: the normal value is rounding of 0
          expect_near({at, at + n}, want.y, unit_of(dtype));
          expect_near({at + n, at + 2 * n}, want.dx, unit_of(dtype));
          expect_near({at + 2 * n, at + 2 * n + h}, want.d_weight, 0);
        }
        expect_near({at + 2 * n + h, all.end()}, want.d_bias, 0);
        return all;
      });
    }
  }
}

TEST(LayerNorm, AFarMeanCostsNoAccuracy) {
  std::vector<float> x(64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 10001.0F : 9999.0F;
  const std::vector<float> ones(64, 1.0F);
  const std::vector<float> zeros(64, 0.0F);
  std::vector<float> y(64);
  layer_norm_forward(
      {.x = x.data(), .weight = ones.data(), .bias = zeros.data(), .rows = 1, .hidden = 64},
      y.data());
  EXPECT_NEAR(y[0], 1.0F, 1e-5);
  EXPECT_NEAR(y[1], -1.0F, 1e-5);
}

TEST(ColumnSum, MatchesDoubleOnEverySetting) {
  for (const Shape& shape : {Shape{0, 5}, Shape{1, 1}, Shape{33, 17}, Shape{5000, 40}}) {
    for (const DType dtype : kDTypes) {
      const Case c(shape, dtype);
      const std::vector<std::byte> x = as_bytes(c.x, dtype);
      for (const bool accumulate : {false, true}) {
        std::vector<double> want(c.weight.size(), accumulate ? 3.0 : 0.0);
        for (std::size_t i = 0; i < c.x.size(); ++i) want[i % want.size()] += c.x[i];
        expect_same_bits_everywhere([&] {
          std::vector<float> total(want.size(), 3.0F);
          column_sum(total.data(), x.data(), dtype, c.rows, c.hidden, accumulate);
          expect_near(total, want, 0);
          return total;
        });
      }
    }
  }
}

TEST(LayerNorm, MissingBuffersAreRefused) {
  std::vector<float> x(4);
  const LayerNormArgs args{.x = x.data(), .weight = x.data(), .rows = 1, .hidden = 4};
  EXPECT_THROW(layer_norm_forward(args, x.data()), Error);                            // bias
  EXPECT_THROW(layer_norm_input_gradient(args, x.data(), x.data(), nullptr), Error);  // mean
  EXPECT_THROW(column_sum(nullptr, x.data(), DType::kFloat32, 1, 4, false), Error);
}

}  // namespace
}  // namespace sluice::testing
