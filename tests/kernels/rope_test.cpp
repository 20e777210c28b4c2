#include "kernels/cpu/rope.hpp"

#include "base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

struct Shape {
  std::int64_t rows, seq, heads, head_dim, stride;
};
// One pair; halves with tails, columns beyond the heads that stay; several pieces, samples in a
// row.
const Shape kShapes[] = {
    {1, 1, 1, 2, 2}, {7, 3, 3, 14, 61}, {9, 9, 2, 34, 68}, {500, 130, 5, 64, 333}};

struct Tables {
  explicit Tables(const Shape& s) {
    for (std::int64_t i = 0; i < s.seq * s.head_dim / 2; ++i) {
      const double angle = 0.37 * static_cast<double>(i % 101);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  std::vector<float> cos, sin;
};

// The element of the turned matrix at `i`, computed in double.
double turned(const Shape& s, const Tables& t, const std::vector<float>& x, std::int64_t i) {
  const std::int64_t row = i / s.stride;
  const std::int64_t column = i % s.stride;
  const double own = x[static_cast<std::size_t>(i)];
  if (column >= s.heads * s.head_dim) return own;
  const std::int64_t half = s.head_dim / 2;
  const std::int64_t within = column % s.head_dim;
  const auto angle = static_cast<std::size_t>(row % s.seq * half + within % half);
  const bool first = within < half;
  const double other = x[static_cast<std::size_t>(first ? i + half : i - half)];
  return own * t.cos[angle] + (first ? -other : other) * t.sin[angle];
}

RopeArgs args_of(const Shape& s, const Tables& t, std::vector<std::byte>& x, DType dtype) {
  return {.x = x.data(),
          .cos = t.cos.data(),
          .sin = t.sin.data(),
          .dtype = dtype,
          .rows = s.rows,
          .seq = s.seq,
          .heads = s.heads,
          .head_dim = s.head_dim,
          .stride = s.stride};
}

TEST(Rope, MatchesDoubleAndTurnsBackOnEverySetting) {
  for (const Shape& s : kShapes) {
    const Tables tables(s);
    for (const DType dtype : kDTypes) {
      std::vector<float> x = normal_values(s.rows * s.stride, 1);
      for (float& v : x) v = rounded(v, dtype);
      const double unit = dtype == DType::kFloat32    ? 1e-7
                          : dtype == DType::kBFloat16 ? 0x1p-8
                                                      : 0x1p-11;
      expect_same_bits_everywhere([&] {
        std::vector<std::byte> bytes = as_bytes(x, dtype);
        RopeArgs args = args_of(s, tables, bytes, dtype);
        rope(args);
        std::vector<float> got(x.size());
        convert(got.data(), DType::kFloat32, bytes.data(), dtype, args.rows * args.stride);
        args.back = true;
        rope(args);
        std::vector<float> back(x.size());
        convert(back.data(), DType::kFloat32, bytes.data(), dtype, args.rows * args.stride);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double want = turned(s, tables, x, static_cast<std::int64_t>(i));
          EXPECT_NEAR(got[i], want, unit * std::abs(want) + 1e-6);
          EXPECT_NEAR(back[i], x[i], 8 * unit + 1e-6);
        }
        return got;
      });
    }
  }
}

TEST(Rope, ContradictionsAreRefused) {
  std::vector<float> x(8);
  const RopeArgs good{.x = x.data(),
                      .cos = x.data(),
                      .sin = x.data(),
                      .rows = 1,
                      .seq = 1,
                      .heads = 2,
                      .head_dim = 4,
                      .stride = 8};
  RopeArgs odd = good;
  odd.head_dim = 3;
  EXPECT_THROW(rope(odd), Error);
  RopeArgs narrow = good;
  narrow.stride = 7;
  EXPECT_THROW(rope(narrow), Error);
  RopeArgs missing = good;
  missing.cos = nullptr;
  EXPECT_THROW(rope(missing), Error);
}

}  // namespace
}  // namespace sluice::testing
