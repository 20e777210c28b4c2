#include "kernels/cpu/reduce.hpp"

#include "kernels/cuda/sum_squares_lanes.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

TEST(SumSquares, MatchesLongDoubleOnEverySetting) {
  for (const std::int64_t n : {0L, 1L, 15L, 17L, 4095L, 4096L, 4097L, 50257L}) {
    for (const DType dtype : kDTypes) {
      const std::vector<float> x = normal_values(n, 5, 3.0F);
      const std::vector<std::byte> source = as_bytes(x, dtype);
      long double want = 0;
      for (const float value : x) {
        const long double r = rounded(value, dtype);
        want += r * r;
      }
      expect_same_bits_everywhere([&] {
        const double got = sum_squares(source.data(), dtype, n);
        EXPECT_NEAR(got, static_cast<double>(want), 1e-13 * static_cast<double>(want));
        return std::vector<double>{got};
      });
    }
  }
}

TEST(SumSquares, NeitherOverflowsNorLosesSmallOnes) {
  const std::vector<float> large(100, 1e30F);
  EXPECT_NEAR(sum_squares(large.data(), 100) / 1e62, 1.0, 1e-6);
  std::vector<float> mixed(1'000'001, 1e-4F);
  mixed[0] = 1.0F;  // fp32 accumulation would drop each 1e-8
  EXPECT_NEAR(sum_squares(mixed.data(), 1'000'001), 1.01, 1e-7);
  const std::vector<float> infinite{1.0F, kInf};
  EXPECT_EQ(sum_squares(infinite.data(), 2), std::numeric_limits<double>::infinity());
  const std::vector<float> nan{1.0F, kNan};
  EXPECT_TRUE(std::isnan(sum_squares(nan.data(), 2)));
}

// What kernels/cuda/sum_squares.cu computes, with a loop for a warp.
double sum_of_lanes(const std::vector<float>& x) {
  std::vector<double> blocks;
  for (std::size_t begin = 0; begin < x.size(); begin += kSumBlock) {
    const auto n = static_cast<std::int64_t>(std::min<std::size_t>(kSumBlock, x.size() - begin));
    std::vector<double> lanes(cuda::kSquareLanes);
    for (int lane = 0; lane < cuda::kSquareLanes; ++lane) {
      lanes[static_cast<std::size_t>(lane)] = cuda::lane_squares(x.data() + begin, n, lane);
    }
    for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    blocks.push_back(lanes[0]);
  }
  for (std::size_t apart = 1; apart < blocks.size(); apart *= 2) {
    for (std::size_t i = 0; i + apart < blocks.size(); i += 2 * apart)
      blocks[i] += blocks[i + apart];
  }
  return blocks.empty() ? 0.0 : blocks[0];
}

TEST(SumSquares, OfAGpusLanesHasTheSameBits) {
  for (const std::int64_t n :
       {0L, 1L, 15L, 16L, 17L, 31L, 33L, 47L, 49L, 4095L, 4097L, 20481L, 50257L}) {
    const std::vector<float> x = normal_values(n, 5, 3.0F);
    EXPECT_EQ(sum_of_lanes(x), sum_squares(x.data(), n)) << n;
  }
}

TEST(PairwiseSum, SplitsAtThePowerOfTwoBelow) {
  const double v[] = {1e16, 1.0, -1e16, 1.0, 1.0};
  EXPECT_EQ(pairwise_sum(v, 5), ((v[0] + v[1]) + (v[2] + v[3])) + v[4]);
  EXPECT_EQ(pairwise_sum(v, 3), (v[0] + v[1]) + v[2]);
  EXPECT_EQ(pairwise_sum(v, 0), 0.0);
}

TEST(FirstNonFinite, FindsTheFirstOfSeveralInEveryDType) {
  for (const std::int64_t n : kSizes) {
    for (const DType dtype : kDTypes) {
      std::vector<float> x = normal_values(n, 6);
      x[0] = 60000.0F;
      std::vector<std::byte> source = as_bytes(x, dtype);
      on_every_setting([&] { EXPECT_EQ(first_non_finite(source.data(), dtype, n), -1); });
      for (const float bad : {kInf, -kInf, kNan}) {
        for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
          std::vector<float> poisoned = x;
          poisoned[static_cast<std::size_t>(at)] = bad;
          poisoned[static_cast<std::size_t>(n - 1)] = bad;
          source = as_bytes(poisoned, dtype);
          on_every_setting([&] {
            EXPECT_EQ(first_non_finite(source.data(), dtype, n), at);
            EXPECT_FALSE(all_finite(source.data(), dtype, n));
          });
        }
      }
    }
  }
}

TEST(FirstNonFinite, LargestFiniteValuesPass) {
  const std::uint16_t bf16[] = {0x7f7f, 0xff7f, 0x0001};
  const std::uint16_t fp16[] = {0x7bff, 0xfbff, 0x0001};
  EXPECT_TRUE(all_finite(bf16, DType::kBFloat16, 3));
  EXPECT_TRUE(all_finite(fp16, DType::kFloat16, 3));
  EXPECT_TRUE(all_finite(nullptr, DType::kFloat32, 0));
}

}  // namespace
}  // namespace sluice::testing
