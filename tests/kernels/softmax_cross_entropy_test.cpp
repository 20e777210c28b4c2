#include "kernels/cpu/softmax_cross_entropy.hpp"

#include <cstddef>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

struct Case {
  std::int64_t rows, vocab, width, stride;
  std::vector<float> logits;
  std::vector<std::int64_t> targets;

  CrossEntropyArgs args(std::vector<float>& buffer, float scale) const {
    return {.logits = buffer.data(),
            .rows = rows,
            .row_stride = stride,
            .vocab = vocab,
            .width = width,
            .targets = targets.data(),
            .scale = scale};
  }
};

Case make_case(std::int64_t rows, std::int64_t vocab, std::int64_t padding, float spread) {
  Case c{rows, vocab, vocab + padding, vocab + padding + 3, {}, {}};
  c.logits = normal_values(rows * c.stride, 11, spread);
  for (std::int64_t row = 0; row < rows; ++row) {
    c.targets.push_back((row * 7919) % vocab);
    for (std::int64_t j = vocab; j < c.stride; ++j) {
      c.logits[static_cast<std::size_t>(row * c.stride + j)] = 1e30F;  // must take no part
    }
  }
  return c;
}

// Loss of a row and its softmax, in double.
double row_oracle(const Case& c, std::int64_t row, std::vector<double>& p) {
  const float* x = c.logits.data() + row * c.stride;
  double max = -INFINITY;
  for (std::int64_t j = 0; j < c.vocab; ++j) max = std::max(max, double{x[j]});
  double sum = 0;
  p.resize(static_cast<std::size_t>(c.vocab));
  for (std::int64_t j = 0; j < c.vocab; ++j)
    sum += p[static_cast<std::size_t>(j)] = std::exp(x[j] - max);
  for (double& value : p) value /= sum;
  return std::log(sum) + max - x[c.targets[static_cast<std::size_t>(row)]];
}

void expect_matches_oracle(const Case& c, float scale) {
  std::vector<float> buffer = c.logits;
  const double total = softmax_cross_entropy(c.args(buffer, scale));
  double want = 0;
  std::vector<double> p;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    want += row_oracle(c, row, p);
    const float* g = buffer.data() + row * c.stride;
    p[static_cast<std::size_t>(c.targets[static_cast<std::size_t>(row)])] -= 1.0;
    for (std::int64_t j = 0; j < c.vocab; ++j) {
      const double expected = p[static_cast<std::size_t>(j)] * scale;
      // fp32 rounds the logit's distance from the largest by 2^-24, which exp turns into a relative
      // error that grows with the distance; below e^-87 it is 0.
      const double distance = std::abs(std::log(std::abs(p[static_cast<std::size_t>(j)]) + 1e-300));
      const double relative = 1e-6 + 0x1p-24 * distance;
      ASSERT_NEAR(g[j], expected, relative * std::abs(expected) + 2e-38) << row << ", " << j;
    }
    for (std::int64_t j = c.vocab; j < c.width; ++j) ASSERT_EQ(g[j], 0.0F);
    for (std::int64_t j = c.width; j < c.stride; ++j) ASSERT_EQ(g[j], 1e30F);  // not ours
  }
  EXPECT_NEAR(total, want, 1e-6 * std::abs(want) + 1e-7 * static_cast<double>(c.rows));
}

TEST(CrossEntropy, MatchesDoubleForOddShapes) {
  for (const std::int64_t vocab : kSizes) {
    const Case c = make_case(vocab > 10000 ? 3 : 5, vocab, vocab % 5, 2.0F);
    on_every_setting([&] { expect_matches_oracle(c, 0.125F); });
  }
}

TEST(CrossEntropy, SaturatedRows) {
  Case c = make_case(4, 257, 7, 40.0F);  // differences beyond exp's range
  on_every_setting([&] { expect_matches_oracle(c, 1.0F); });
}

TEST(CrossEntropy, SameBitsOnEverySettingAndWhateverRowsShareACall) {
  for (const std::int64_t vocab : kSizes) {
    const Case c = make_case(9, vocab, 3, 3.0F);
    expect_same_bits_everywhere([&] {
      std::vector<float> whole = c.logits;
      std::vector<float> cut = c.logits;
      std::vector<double> result{softmax_cross_entropy(c.args(whole, 0.5F))};
      for (std::int64_t row = 0; row < c.rows; ++row) {
        CrossEntropyArgs one = c.args(cut, 0.5F);
        one.logits += row * c.stride;
        one.targets += row;
        one.rows = 1;
        const double loss_only = softmax_cross_entropy_loss(one);
        result.push_back(softmax_cross_entropy(one));
        EXPECT_EQ(result.back(), loss_only);
      }
      EXPECT_EQ(whole, cut);
      EXPECT_EQ(result[0], std::accumulate(result.begin() + 1, result.end(), 0.0));
      result.insert(result.end(), whole.begin(), whole.end());
      return result;
    });
  }
}

TEST(CrossEntropy, IgnoredRowsHaveNoLossAndNoGradient) {
  Case c = make_case(2, 33, 0, 1.0F);
  std::vector<float> buffer = c.logits;
  const double both = softmax_cross_entropy_loss(c.args(buffer, 1.0F));
  c.targets[0] = kIgnoreTarget;
  std::vector<double> p;
  const double second = row_oracle(c, 1, p);
  EXPECT_NEAR(softmax_cross_entropy(c.args(buffer, 1.0F)), second, 1e-6);
  EXPECT_GT(both, second);
  for (std::int64_t j = 0; j < c.width; ++j) EXPECT_EQ(buffer[static_cast<std::size_t>(j)], 0.0F);
}

TEST(CrossEntropy, MasksAreFineAndNonFiniteLogitsShow) {
  on_every_setting([] {
    for (const std::size_t at :
         {std::size_t{3}, std::size_t{34}}) {  // in a full block, in the tail
      Case c = make_case(1, 35, 0, 1.0F);
      c.targets[0] = 1;
      c.logits[at] = -kInf;
      expect_matches_oracle(c, 1.0F);
      for (const float bad : {kInf, kNan}) {
        std::vector<float> buffer = c.logits;
        buffer[at] = bad;
        EXPECT_FALSE(std::isfinite(softmax_cross_entropy(c.args(buffer, 1.0F))));
        EXPECT_TRUE(std::isnan(buffer[0]));
      }
      std::vector<float> all_masked(c.logits.size(), -kInf);
      EXPECT_FALSE(std::isfinite(softmax_cross_entropy(c.args(all_masked, 1.0F))));
    }
  });
}

TEST(CrossEntropy, BadTargetsAreRefusedBeforeAnythingIsWritten) {
  for (const std::int64_t bad : {-1L, 33L}) {
    Case c = make_case(2, 33, 2, 1.0F);
    c.targets[1] = bad;
    std::vector<float> buffer = c.logits;
    EXPECT_THROW((void)softmax_cross_entropy(c.args(buffer, 1.0F)), Error);
    EXPECT_EQ(buffer, c.logits);
  }
}

TEST(Exp, WithinTwoTenMillionthsAndTheSameEverywhere) {
  std::vector<float> x;
  for (float v = -87.0F; v < 88.3F; v += 0.0007F) x.push_back(v);
  const auto n = static_cast<std::int64_t>(x.size());
  expect_same_bits_everywhere([&] {
    std::vector<float> y(x.size());
    kernels().exp(y.data(), x.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(double{x[i]});
      EXPECT_NEAR(y[i] / want, 1.0, 2e-7) << x[i];
    }
    return y;
  });
}

TEST(Exp, Ends) {
  on_every_setting([] {
    const float x[] = {-kInf, -87.01F, -1e30F, 0.0F, -0.0F, 89.0F, 1e30F, kInf, kNan};
    float y[9];
    kernels().exp(y, x, 9);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(y[i], 0.0F);
    EXPECT_EQ(y[3], 1.0F);
    EXPECT_EQ(y[4], 1.0F);
    for (int i = 5; i < 8; ++i) EXPECT_EQ(y[i], kInf);
    EXPECT_TRUE(std::isnan(y[8]));
  });
}

// The fp32 gradient, rounded, at the beginning of each row; widths on both sides of a block.
TEST(SoftmaxCrossEntropy, GradientIn16BitsIsTheFp32OneRounded) {
  for (const std::int64_t vocab : {5, 1023, 2500}) {
    Case c = make_case(3, vocab, 2, 3.0F);
    c.targets[1] = kIgnoreTarget;
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<float> wide = c.logits;
      std::vector<float> narrow = c.logits;
      CrossEntropyArgs args = c.args(narrow, 0.5F);
      args.gradient_dtype = dtype;
      EXPECT_EQ(softmax_cross_entropy(args), softmax_cross_entropy(c.args(wide, 0.5F)));
      for (std::int64_t row = 0; row < c.rows; ++row) {
        const float* want = wide.data() + row * c.stride;
        const auto* bytes = reinterpret_cast<const std::byte*>(narrow.data() + row * c.stride);
        for (std::int64_t j = 0; j < c.width; ++j) {
          std::uint16_t got = 0;
          std::memcpy(&got, bytes + 2 * j, sizeof got);
          ASSERT_EQ(got, dtype == DType::kBFloat16 ? bf16_bits(want[j]) : fp16_bits(want[j]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
