#include <gtest/gtest.h>

#include "runtime/run/train_options.hpp"

namespace sluice {
namespace {

TEST(LearningRate, WarmsUpLinearlyFromTheFirstStep) {
  const OptimizerOptions optimizer{.lr = 1.0};
  const ScheduleOptions schedule{.type = ScheduleType::kConstant, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 10, 1), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 10, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 10, 9), 1.0);
}

TEST(LearningRate, FallsToTheMinimumAtTheLastStepAndStaysThere) {
  const OptimizerOptions optimizer{.lr = 1.0};
  for (const ScheduleType type :
       {ScheduleType::kLinear, ScheduleType::kCosine, ScheduleType::kWsd}) {
    const ScheduleOptions schedule{.type = type, .warmup_steps = 10, .min_lr = 0.1};
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 110, 10), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 110, 110), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 110, 500), 0.1);
    for (int step = 11; step <= 110; ++step) {
      EXPECT_LE(learning_rate(optimizer, schedule, 110, step),
                learning_rate(optimizer, schedule, 110, step - 1));
    }
  }
}

TEST(LearningRate, HalfWayThrough) {
  const OptimizerOptions optimizer{.lr = 1.0};
  EXPECT_DOUBLE_EQ(
      learning_rate(optimizer, {.type = ScheduleType::kLinear, .min_lr = 0.2}, 100, 50), 0.6);
  EXPECT_DOUBLE_EQ(
      learning_rate(optimizer, {.type = ScheduleType::kCosine, .min_lr = 0.2}, 100, 50), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, {.type = ScheduleType::kCosine, .min_lr = 0}, 300, 100),
                   0.75);
}

TEST(LearningRate, WsdIsStableUntilItsFall) {
  const OptimizerOptions optimizer{.lr = 1.0};
  ScheduleOptions schedule{.type = ScheduleType::kWsd, .decay_steps = 100};
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 1000, 90), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 1000, 95), 0.5);
  schedule.wsd_decay = 50;
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 1000, 75), 0.5);
}

}  // namespace
}  // namespace sluice
