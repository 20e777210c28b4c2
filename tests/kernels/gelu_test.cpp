#include "kernels/cpu/gelu.hpp"

#include "base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double c = std::sqrt(2 / M_PI);
  const double t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void expect_close(float got, double want) { EXPECT_NEAR(got, want, 2e-6 * std::abs(want) + 1e-6); }

TEST(Gelu, ForwardAndBackwardMatchDouble) {
  for (const std::int64_t n : kSizes) {
    const std::vector<float> x = normal_values(n, 1, 3.0F);
    const std::vector<float> dy = normal_values(n, 2);
    expect_same_bits_everywhere([&] {
      std::vector<float> y(x.size());
      std::vector<float> dx = dy;
      gelu_forward(y, x);
      gelu_backward(dx, x, dx);  // in the place of dy
      for (std::size_t i = 0; i < x.size(); ++i) {
        expect_close(y[i], gelu(x[i]));
        expect_close(dx[i], dy[i] * gelu_slope(x[i]));
      }
      y.insert(y.end(), dx.begin(), dx.end());
      return y;
    });
  }
}

// Of 16-bit values: what fp32 gives, rounded once.
TEST(Gelu, SixteenBitsRoundOnce) {
  for (const std::int64_t n : kSizes) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      const std::vector<std::byte> x = as_bytes(normal_values(n, 1, 3.0F), dtype);
      const std::vector<std::byte> dy = as_bytes(normal_values(n, 2), dtype);
      std::vector<float> wide_x(static_cast<std::size_t>(n));
      std::vector<float> wide_dy(wide_x.size());
      convert(wide_x.data(), DType::kFloat32, x.data(), dtype, n);
      convert(wide_dy.data(), DType::kFloat32, dy.data(), dtype, n);
      gelu_backward(wide_dy, wide_x, wide_dy);
      gelu_forward(wide_x, wide_x);
      expect_same_bits_everywhere([&] {
        std::vector<std::byte> y = x;
        std::vector<std::byte> dx = x;
        std::vector<std::byte> both_dx = x;
        std::vector<std::byte> both_y = dy;
        gelu_forward(y.data(), y.data(), dtype, n);
        gelu_backward(dx.data(), dx.data(), dy.data(), dtype, n);
        gelu_backward(both_dx.data(), both_dx.data(), both_y.data(), dtype, n, both_y.data());
        EXPECT_EQ(y, as_bytes(wide_x, dtype));
        EXPECT_EQ(dx, as_bytes(wide_dy, dtype));
        EXPECT_EQ(both_y, y);
        EXPECT_EQ(both_dx, dx);
        y.insert(y.end(), dx.begin(), dx.end());
        return y;
      });
    }
  }
}

TEST(Gelu, CutsGiveTheSameBits) {
  const std::vector<float> x = normal_values(1000, 3, 3.0F);
  std::vector<float> whole(1000);
  std::vector<float> cut(1000);
  gelu_forward(whole, x);
  const std::span<const float> in(x);
  const std::span<float> out(cut);
  gelu_forward(out.first(333), in.first(333));
  gelu_forward(out.subspan(333), in.subspan(333));
  EXPECT_EQ(whole, cut);
}

TEST(Gelu, LargeInputsNeitherOverflowNorLoseNan) {
  on_every_setting([] {
    const std::vector<float> x{0.0F, 40.0F, -40.0F, 1e20F, -1e20F, kInf, kNan};
    const std::vector<float> ones(x.size(), 1.0F);
    std::vector<float> y(x.size());
    std::vector<float> dx(x.size());
    gelu_forward(y, x);
    gelu_backward(dx, x, ones);
    EXPECT_EQ(y[0], 0.0F);
    EXPECT_EQ(dx[0], 0.5F);
    EXPECT_EQ(y[1], 40.0F);
    EXPECT_EQ(y[2], 0.0F);
    EXPECT_EQ(y[3], 1e20F);
    EXPECT_EQ(y[4], 0.0F);
    EXPECT_EQ(y[5], kInf);
    for (const std::size_t up : {1U, 3U, 5U}) EXPECT_EQ(dx[up], 1.0F);
    for (const std::size_t down : {2U, 4U}) EXPECT_EQ(dx[down], 0.0F);
    EXPECT_TRUE(std::isnan(y[6]) && std::isnan(dx[6]));
  });
}

TEST(Swiglu, ForwardAndBackwardMatchDouble) {
  for (const std::int64_t n : kSizes) {
    const std::vector<float> a = normal_values(n, 4, 3.0F);
    const std::vector<float> b = normal_values(n, 5);
    const std::vector<float> dy = normal_values(n, 6);
    expect_same_bits_everywhere([&] {
      std::vector<float> y(a.size());
      std::vector<float> da = a;
      std::vector<float> db = b;
      swiglu_forward(y, a, b);
      swiglu_backward(da, db, da, db, dy);  // in the place of the inputs
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double s = sigmoid(a[i]);
        expect_close(y[i], a[i] * s * b[i]);
        expect_close(da[i], dy[i] * b[i] * (s + a[i] * s * (1 - s)));
        expect_close(db[i], dy[i] * a[i] * s);
      }
      y.insert(y.end(), da.begin(), da.end());
      y.insert(y.end(), db.begin(), db.end());
      return y;
    });
  }
}

// Side by side: in every dtype what the spans of fp32 give, rounded once.
TEST(Swiglu, SideBySideEqualsTheSpans) {
  struct Shape {
    std::int64_t rows, width;
  };
  for (const Shape& s : {Shape{1, 1}, Shape{5, 17}, Shape{90, 400}}) {
    const auto n = static_cast<std::size_t>(s.rows * s.width);
    const auto width = static_cast<std::size_t>(s.width);
    for (const DType dtype : kDTypes) {
      std::vector<float> gate_up = normal_values(2 * s.rows * s.width, 7, 3.0F);
      std::vector<float> dy = normal_values(s.rows * s.width, 8);
      for (float& v : gate_up) v = rounded(v, dtype);
      for (float& v : dy) v = rounded(v, dtype);
      std::vector<float> y(n);
      std::vector<float> gradient(2 * n);
      for (std::size_t row = 0; row < n / width; ++row) {
        const auto part = [&](std::vector<float>& v, std::size_t at) {
          return std::span(v).subspan(at, width);
        };
        const std::size_t at = row * width;
        swiglu_forward(part(y, at), part(gate_up, 2 * at), part(gate_up, 2 * at + width));
        swiglu_backward(part(gradient, 2 * at), part(gradient, 2 * at + width),
                        part(gate_up, 2 * at), part(gate_up, 2 * at + width), part(dy, at));
      }
      const std::vector<std::byte> grad = as_bytes(dy, dtype);
      expect_same_bits_everywhere([&] {
        std::vector<std::byte> both = as_bytes(gate_up, dtype);
        std::vector<std::byte> again = both;
        std::vector<std::byte> out(grad.size());
        std::vector<std::byte> out_again = grad;
        const GateUp args{both.data(), dtype, s.rows, s.width};
        swiglu_forward(out.data(), args);
        swiglu_backward(args, grad.data());
        swiglu_backward({again.data(), dtype, s.rows, s.width}, out_again.data(), out_again.data());
        EXPECT_EQ(out, as_bytes(y, dtype));
        EXPECT_EQ(both, as_bytes(gradient, dtype));
        EXPECT_EQ(out_again, out);
        EXPECT_EQ(again, both);
        out.insert(out.end(), both.begin(), both.end());
        return out;
      });
    }
  }
}

TEST(Gelu, LengthsThatDifferAreRefused) {
  std::vector<float> two(2);
  std::vector<float> three(3);
  EXPECT_THROW(gelu_forward(two, three), Error);
  EXPECT_THROW(gelu_backward(two, two, three), Error);
  EXPECT_THROW(
      gelu_backward(two.data(), three.data(), three.data(), DType::kFloat32, 2, two.data()),
      Error);                                                     // y and dx in one buffer
  EXPECT_THROW(swiglu_backward(two, two, two, two, two), Error);  // both outputs in one buffer
  EXPECT_THROW(swiglu_forward(two.data(), {nullptr, DType::kFloat32, 1, 2}), Error);
}

}  // namespace
}  // namespace sluice::testing
