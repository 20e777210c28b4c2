#include "runtime/observe/loss_trend.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace sluice {
namespace {

TEST(LossTrend, IsKnownFromTheTenthStepOn) {
  LossTrendMeter meter;
  for (int i = 0; i < 9; ++i) meter.add(4);
  EXPECT_FALSE(meter.trend());
  meter.add(4);
  ASSERT_TRUE(meter.trend());
  EXPECT_EQ(meter.trend()->change, 0);
  EXPECT_FALSE(meter.trend()->is_clear());
}

TEST(LossTrend, ComparesHalvesThenWindows) {
  LossTrendMeter meter;
  for (int i = 0; i < 12; ++i) meter.add(10 - i);  // halves of 6: 2.5 and 7.5 less
  EXPECT_DOUBLE_EQ(meter.trend()->change, -6);
  EXPECT_TRUE(meter.trend()->is_clear());
  for (int i = 12; i < 400; ++i) meter.add(10 - i);
  EXPECT_DOUBLE_EQ(meter.trend()->change, -50);
}

// Variances of 6 values x, x-1, ... x-5: 17.5 / 5 each, so the error is sqrt(2 * 3.5 / 6).
TEST(LossTrend, ErrorOfTheDifference) {
  LossTrendMeter meter;
  for (int i = 0; i < 12; ++i) meter.add(10 - i);
  EXPECT_NEAR(meter.trend()->error, std::sqrt(2 * 3.5 / 6), 1e-12);
}

TEST(LossTrend, NoiseIsNoTrend) {
  LossTrendMeter meter;
  for (int i = 0; i < 100; ++i) meter.add(3 + (i % 2 == 0 ? 0.1 : -0.1) - 1e-4 * i);
  EXPECT_LT(meter.trend()->change, 0);
  EXPECT_FALSE(meter.trend()->is_clear());
  for (int i = 0; i < 50; ++i) meter.add(4 + (i % 2 == 0 ? 0.1 : -0.1));
  EXPECT_TRUE(meter.trend()->is_clear());
  EXPECT_GT(meter.trend()->change, 0);
}

TEST(LossTrend, LossesThatAreNotFiniteDoNotCount) {
  LossTrendMeter meter;
  for (int i = 0; i < 20; ++i) meter.add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(meter.trend());
}

}  // namespace
}  // namespace sluice
