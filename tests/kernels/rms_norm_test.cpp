#include "kernels/cpu/rms_norm.hpp"

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
constexpr double kEps = 1e-2;  // large enough to be seen

struct Case {
  Case(const Shape& s, DType type) : rows(s.rows), hidden(s.hidden), dtype(type) {
    const auto values = [&](std::int64_t n, unsigned seed, float std) {
      std::vector<float> result = normal_values(n, seed, std);
      for (float& v : result) v = rounded(v + 0.5F, dtype);
      return result;
    };
    x = values(rows * hidden, 1, 3.0F);
    dy = values(rows * hidden, 2, 1.0F);
    residual = values(rows * hidden, 3, 1.0F);
    weight = values(hidden, 4, 1.0F);
  }

  std::int64_t rows, hidden;
  DType dtype;
  std::vector<float> x, dy, residual, weight;
};

struct Oracle {
  explicit Oracle(const Case& c) : y(c.x.size()), dx(c.x.size()), d_weight(c.weight.size()) {
    const auto n = static_cast<double>(c.hidden);
    const auto width = static_cast<std::size_t>(c.hidden);
    for (std::size_t first = 0; first < c.x.size(); first += width) {
      double square = 0, along = 0;
      for (std::size_t i = first; i < first + width; ++i) square += c.x[i] * double{c.x[i]} / n;
      const double rstd = 1 / std::sqrt(square + kEps);
      for (std::size_t i = first; i < first + width; ++i) {
        const double z = c.x[i] * rstd;
        y[i] = z * c.weight[i - first];
        d_weight[i - first] += c.dy[i] * z;
        along += double{c.dy[i]} * c.weight[i - first] * z / n;
      }
      for (std::size_t i = first; i < first + width; ++i) {
        const double g = double{c.dy[i]} * c.weight[i - first];
        dx[i] = c.residual[i] + rstd * (g - c.x[i] * rstd * along);
      }
    }
  }
  std::vector<double> y, dx, d_weight;
};

// `unit`: the dtype's rounding, relative.
void expect_near(const float* got, const std::vector<double>& want, double unit) {
  double scale = 0;
  for (const double v : want) scale = std::max(scale, std::abs(v));
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], unit * std::abs(want[i]) + 3e-6 * (scale + 1)) << i;
  }
}

// Output, dx (in the place of the residual), the weight's gradient on top of 2, and replaced.
std::vector<float> run(const Case& c) {
  const std::vector<std::byte> x = as_bytes(c.x, c.dtype);
  const std::vector<std::byte> dy = as_bytes(c.dy, c.dtype);
  const std::vector<std::byte> weight = as_bytes(c.weight, c.dtype);
  std::vector<std::byte> dx = as_bytes(c.residual, c.dtype);
  std::vector<std::byte> y = x;
  std::vector<float> rstd(static_cast<std::size_t>(c.rows));
  RmsNormArgs args{.x = y.data(),
                   .weight = weight.data(),
                   .rstd = rstd.data(),
                   .dtype = c.dtype,
                   .rows = c.rows,
                   .hidden = c.hidden,
                   .eps = kEps};
  rms_norm_forward(args, y.data());  // in the place of x
  args.x = x.data();
  std::vector<float> added(c.weight.size(), 2.0F);
  std::vector<float> replaced(c.weight.size(), kNan);
  rms_norm_weight_gradient(args, added.data(), dy.data(), true);
  rms_norm_weight_gradient(args, replaced.data(), dy.data(), false);
  rms_norm_input_gradient(args, dx.data(), dy.data(), dx.data());
  std::vector<float> all(2 * c.x.size());
  const auto n = static_cast<std::int64_t>(c.x.size());
  convert(all.data(), DType::kFloat32, y.data(), c.dtype, n);
  convert(all.data() + n, DType::kFloat32, dx.data(), c.dtype, n);
  all.insert(all.end(), added.begin(), added.end());
  all.insert(all.end(), replaced.begin(), replaced.end());
  return all;
}

TEST(RmsNorm, MatchesDoubleOnEverySetting) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kDTypes) {
      const Case c(shape, dtype);
      Oracle want(c);
      const std::vector<double> replaced = want.d_weight;
      for (double& v : want.d_weight) v += 2;
      const double unit = dtype == DType::kFloat32    ? 0
                          : dtype == DType::kBFloat16 ? 0x1p-8
                                                      : 0x1p-11;
      expect_same_bits_everywhere([&] {
        std::vector<float> all = run(c);
        const float* at = all.data();
        expect_near(at, want.y, unit);
        expect_near(at + want.y.size(), want.dx, unit);
        expect_near(at + 2 * want.y.size(), want.d_weight, 0);
        expect_near(at + 2 * want.y.size() + replaced.size(), replaced, 0);
        return all;
      });
    }
  }
}

TEST(RmsNorm, WithoutAResidualAndWithoutStatistics) {
  const Case c({3, 17}, DType::kFloat32);
  std::vector<float> rstd(3);
  std::vector<float> y(c.x.size()), again(c.x.size()), dx(c.x.size()), with(c.x.size());
  RmsNormArgs args{.x = c.x.data(), .weight = c.weight.data(), .rows = 3, .hidden = 17};
  rms_norm_forward(args, again.data());
  args.rstd = rstd.data();
  rms_norm_forward(args, y.data());
  EXPECT_EQ(y, again);
  const std::vector<float> zeros(c.x.size());
  rms_norm_input_gradient(args, dx.data(), c.dy.data(), nullptr);
  rms_norm_input_gradient(args, with.data(), c.dy.data(), zeros.data());
  EXPECT_EQ(dx, with);
}

TEST(RmsNorm, MissingBuffersAreRefused) {
  std::vector<float> x(4);
  const RmsNormArgs args{.x = x.data(), .weight = x.data(), .rows = 1, .hidden = 4};
  EXPECT_THROW(rms_norm_forward(args, nullptr), Error);
  EXPECT_THROW(rms_norm_input_gradient(args, x.data(), x.data(), nullptr), Error);  // rstd
  EXPECT_THROW(rms_norm_weight_gradient(args, x.data(), x.data(), false), Error);
}

}  // namespace
}  // namespace sluice::testing
