#include "runtime/report/downsample.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Downsample, BinsArePowersOfTwoAndBounded) {
  EXPECT_EQ(steps_per_bin(0), 1U);
  EXPECT_EQ(steps_per_bin(4000), 1U);
  EXPECT_EQ(steps_per_bin(4001), 2U);
  for (const std::size_t steps : {5000U, 123'457U, 1'000'000U}) {
    const std::size_t per_bin = steps_per_bin(steps);
    EXPECT_EQ(per_bin & (per_bin - 1), 0U);
    EXPECT_LE((steps + per_bin - 1) / per_bin, 4000U);
    EXPECT_GT(steps / per_bin, 1900U);
  }
}

// A single high value and a single low value of 200 000 stand in the page exactly.
TEST(Downsample, LosesNoPeak) {
  std::vector<float> values(200'001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 3 + 0.1F * static_cast<float>(i % 7);
  values[123'456] = 77.25F;
  values[61'803] = -5.5F;
  values.back() = 99.5F;  // of a bin that is not full
  const std::size_t per_bin = steps_per_bin(values.size());
  const Curve curve = downsample(values, per_bin);
  ASSERT_EQ(curve.mean.size(), (values.size() + per_bin - 1) / per_bin);
  EXPECT_EQ(curve.most[123'456 / per_bin], 77.25F);
  EXPECT_EQ(curve.least[61'803 / per_bin], -5.5F);
  EXPECT_EQ(curve.most.back(), 99.5F);
  EXPECT_EQ(curve.least[1], 3);
  EXPECT_NEAR(curve.mean[1], 3.3, 0.02);
  EXPECT_FALSE(curve.constant);
}

TEST(Downsample, SingleStepsStayAsTheyAre) {
  const std::vector<float> values{1, kNan, 3};
  const Curve curve = downsample(values, 1);
  EXPECT_EQ(curve.mean[0], 1);
  EXPECT_TRUE(std::isnan(curve.mean[1]));
  EXPECT_TRUE(curve.least.empty());
  EXPECT_TRUE(curve.known);
}

TEST(Downsample, UnknownAndInfiniteValues) {
  const std::vector<float> values{1,    kNan, 3, std::numeric_limits<float>::infinity(),
                                  kNan, kNan, 2, 2};
  const Curve curve = downsample(values, 2);
  EXPECT_EQ(curve.mean[0], 1);
  EXPECT_EQ(curve.mean[1], 3);
  EXPECT_TRUE(std::isinf(curve.most[1]));
  EXPECT_TRUE(std::isnan(curve.mean[2]));
  EXPECT_TRUE(std::isnan(curve.most[2]));
  EXPECT_FALSE(downsample(std::vector<float>{kNan, kNan}, 2).known);
  EXPECT_TRUE(downsample(std::vector<float>{5, 5, 5}, 2).constant);
  EXPECT_FALSE(downsample(std::vector<float>{5, kNan}, 1).constant);
}

TEST(Downsample, Median) {
  EXPECT_EQ(median(std::vector<float>{9, kNan, 1, 5}), 5);
  EXPECT_TRUE(std::isnan(median(std::vector<float>{kNan})));
}

}  // namespace
}  // namespace sluice
