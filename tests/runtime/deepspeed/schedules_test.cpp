// Learning rates of DeepSpeed's schedulers and of Hugging Face's, by formulas of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "runtime/run/train_options.hpp"

namespace sluice::testing {
namespace {

constexpr int kSteps = 2000;
constexpr double kLr = 6e-4;

// Parameters of a DeepSpeed scheduler. For WarmupCosineLR, both minima are shares of the learning
// rate.
struct Scheduler {
  ScheduleType type = ScheduleType::kConstant;
  bool log = false;
  int warmup_num_steps = 0, total_num_steps = 0;
  double warmup_min = 0, min = 0;

  [[nodiscard]] std::string name() const {
    return "type " + std::to_string(static_cast<int>(type)) + (log ? " log" : " linear") + " of " +
           std::to_string(warmup_num_steps) + " and " + std::to_string(total_num_steps);
  }
};

// The first optimizer step uses the learning rate that the scheduler has when it is made. Step s
// uses the learning rate that the scheduler set after step s - 1, in its call number s - 2 (from
// 0).
double scheduled(const Scheduler& is, int step) {
  const int warmup = std::max(2, is.warmup_num_steps);
  const bool cosine = is.type == ScheduleType::kCosine;
  const double unit = cosine ? kLr : 1;
  const int call = step - 2;
  if (call < 0) return cosine ? 0 : is.warmup_min;
  if (call < warmup) {
    const double gamma =
        is.log ? std::log(call + 1.0) / std::log(warmup * 1.0) : call / (warmup * 1.0);
    return unit * is.warmup_min + (kLr - unit * is.warmup_min) * gamma;
  }
  if (is.type == ScheduleType::kConstant) return kLr;
  const double length = std::max(1, is.total_num_steps - warmup);
  if (cosine) {
    const double progress = std::min(1.0, (call - warmup + 1) / length);
    return kLr * (is.min + (1 - is.min) * (1 + std::cos(std::numbers::pi * progress)) / 2);
  }
  const double left = std::max(0.0, (is.total_num_steps - call) / length);
  return is.warmup_min + (kLr - is.warmup_min) * left;
}

ScheduleOptions ours(const Scheduler& is) {
  ScheduleOptions schedule{.type = is.type,
                           .warmup = is.log ? WarmupShape::kLog : WarmupShape::kLinear,
                           .warmup_steps = is.warmup_num_steps,
                           .warmup_min_lr = is.warmup_min,
                           .min_lr = is.warmup_min,
                           .decay_steps = is.total_num_steps,
                           .counting = StepCounting::kDeepSpeed};
  if (is.type == ScheduleType::kCosine) {
    schedule.warmup_min_lr = RateBound::share_of_lr(is.warmup_min);
    schedule.min_lr = RateBound::share_of_lr(is.min);
  }
  return schedule;
}

void expect_equal(const Scheduler& is) {
  const OptimizerOptions optimizer{.lr = kLr};
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_NEAR(learning_rate(optimizer, ours(is), kSteps, step), scheduled(is, step), 1e-15)
        << is.name() << ", step " << step;
  }
}

TEST(DeepSpeedSchedules, AreEqualOverTwoThousandSteps) {
  for (const ScheduleType type :
       {ScheduleType::kConstant, ScheduleType::kLinear, ScheduleType::kCosine}) {
    for (const bool log : {false, true}) {
      for (const int warmup : {1, 2, 3, 10, 1000, 1999, 3000}) {
        // The totals of a warm-up that fills the run, is longer than it, and leaves one step.
        for (const int total : {2000, 1500, 4000, warmup, warmup + 1, std::max(1, warmup - 1)}) {
          const bool cosine = type == ScheduleType::kCosine;
          expect_equal({type, log, warmup, total, 0, 0});
          expect_equal({type, log, warmup, total, cosine ? 0.1 : 1e-5, cosine ? 1e-4 : 0});
          expect_equal({type, log, warmup, total, cosine ? 0 : kLr, 0.5});
        }
      }
    }
  }
}

// Rates of a warm-up of 4 and a total of 8, by hand.
TEST(DeepSpeedSchedules, FirstAndLastStepsByHand) {
  const OptimizerOptions optimizer{.lr = 1};
  const auto rates = [&](ScheduleType type, WarmupShape warmup) {
    std::vector<double> all;
    const ScheduleOptions schedule{.type = type,
                                   .warmup = warmup,
                                   .warmup_steps = 4,
                                   .decay_steps = 8,
                                   .counting = StepCounting::kDeepSpeed};
    for (int step = 1; step <= 11; ++step)
      all.push_back(learning_rate(optimizer, schedule, 8, step));
    return all;
  };
  EXPECT_EQ(rates(ScheduleType::kConstant, WarmupShape::kLinear),
            (std::vector<double>{0, 0, .25, .5, .75, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(rates(ScheduleType::kLinear, WarmupShape::kLinear),
            (std::vector<double>{0, 0, .25, .5, .75, 1, .75, .5, .25, 0, 0}));
  const auto log = rates(ScheduleType::kConstant, WarmupShape::kLog);
  EXPECT_EQ(log[0], 0);
  EXPECT_EQ(log[1], 0);
  EXPECT_DOUBLE_EQ(log[2], 0.5);
  EXPECT_EQ(log[4], 1);
  // A cosine begins a step before a linear warm-up has reached the top, which is never used.
  const auto cosine = rates(ScheduleType::kCosine, WarmupShape::kLinear);
  EXPECT_EQ(cosine[4], 0.75);
  EXPECT_DOUBLE_EQ(cosine[5], 0.5 + std::sqrt(0.125));
  EXPECT_DOUBLE_EQ(cosine[6], 0.5);
  EXPECT_EQ(cosine[8], 0);
}

// A DeepSpeed warm-up has at least two steps. Our own may have none, or one.
TEST(DeepSpeedSchedules, ShortWarmUps) {
  const OptimizerOptions optimizer{.lr = 1};
  ScheduleOptions schedule{.type = ScheduleType::kConstant, .counting = StepCounting::kDeepSpeed};
  EXPECT_EQ(learning_rate(optimizer, schedule, 9, 3), 0.5);
  schedule.counting = StepCounting::kFromZero;
  EXPECT_EQ(learning_rate(optimizer, schedule, 9, 1), 1);
  schedule.warmup = WarmupShape::kLog;
  for (const int warmup : {0, 1}) {
    schedule.warmup_steps = warmup;
    schedule.counting = StepCounting::kFromOne;
    EXPECT_EQ(learning_rate(optimizer, schedule, 9, 1), 1) << warmup;
    schedule.counting = StepCounting::kFromZero;
    EXPECT_EQ(learning_rate(optimizer, schedule, 9, 1), warmup == 0 ? 1 : 0);
    EXPECT_EQ(learning_rate(optimizer, schedule, 9, 2), 1);
  }
}

// get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup: step s uses the factor of
// index s - 1.
TEST(HuggingFaceSchedules, CountFromZero) {
  const OptimizerOptions optimizer{.lr = kLr};
  for (const int warmup : {0, 1, 7, 300}) {
    for (const bool cosine : {false, true}) {
      const ScheduleOptions schedule{.type = cosine ? ScheduleType::kCosine : ScheduleType::kLinear,
                                     .warmup_steps = warmup,
                                     .counting = StepCounting::kFromZero};
      for (int step = 1; step <= kSteps; ++step) {
        const int index = step - 1;
        const double done = (index - warmup) / static_cast<double>(kSteps - warmup);
        const double factor = index < warmup ? index / static_cast<double>(warmup)
                              : cosine       ? 0.5 * (1 + std::cos(std::numbers::pi * done))
                                             : 1 - done;
        ASSERT_NEAR(learning_rate(optimizer, schedule, kSteps, step), kLr * factor, 1e-15)
            << warmup << ", step " << step;
      }
    }
  }
}

// The warm-up of every counting, with a logarithm and a floor.
TEST(Schedules, WarmUpRisesFromItsFloorToTheTop) {
  const OptimizerOptions optimizer{.lr = 1};
  for (const StepCounting counting :
       {StepCounting::kFromOne, StepCounting::kFromZero, StepCounting::kDeepSpeed}) {
    for (const WarmupShape warmup : {WarmupShape::kLinear, WarmupShape::kLog}) {
      const ScheduleOptions schedule{.type = ScheduleType::kConstant,
                                     .warmup = warmup,
                                     .warmup_steps = 50,
                                     .warmup_min_lr = 0.25,
                                     .counting = counting};
      double before = 0.25;
      for (int step = 1; step <= 60; ++step) {
        const double rate = learning_rate(optimizer, schedule, 100, step);
        EXPECT_GE(rate, before);
        before = rate;
      }
      EXPECT_EQ(before, 1);
      EXPECT_LT(learning_rate(optimizer, schedule, 100, 49), 1);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
