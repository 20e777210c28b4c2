// DeepSpeed's DynamicLossScaler in the terms of its iterations, and static scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "zero/loss_scaler.hpp"

namespace sluice::testing {
namespace {

// Iterations are counted from 0. The scale doubles if the iterations without overflow *before* the
// present one fill whole windows.
struct ByIterations {
  LossScaleOptions options;
  double scale = options.initial;
  std::int64_t iteration = 0, last_overflow = -1;
  int left = options.hysteresis;

  bool update(bool overflowed) {
    const std::int64_t clean = iteration - last_overflow - 1;
    bool goes_on = true;
    if (overflowed) {
      if (left > 1) {
        --left;
      } else {
        goes_on = scale != options.min;
        scale = std::max(scale / 2, options.min);
      }
      last_overflow = iteration;
    } else {
      const bool grows = clean > 0 && clean % options.window == 0;
      if (grows || options.consecutive_hysteresis) left = options.hysteresis;
      if (grows) scale *= 2;
    }
    ++iteration;
    return goes_on;
  }
};

TEST(DeepSpeedLossScale, IsEqualOverRandomOverflows) {
  std::mt19937 random(7);
  for (int run = 0; run < 300; ++run) {
    LossScaleOptions options{.initial = 65536,
                             .window = 1 + static_cast<std::int64_t>(random() % 6),
                             .hysteresis = 1 + static_cast<int>(random() % 4),
                             .consecutive_hysteresis = random() % 2 == 0,
                             .min = 4};
    ByIterations theirs{options};
    options.first_window = options.window + 1;
    LossScaler ours(options);
    const unsigned rarity = 2 + random() % 12;
    for (int step = 0; step < 400; ++step) {
      const bool overflowed = random() % rarity == 0;
      const bool goes_on = theirs.update(overflowed);
      ASSERT_EQ(ours.update(overflowed), goes_on) << "run " << run << ", step " << step;
      if (!goes_on) break;
      ASSERT_EQ(ours.scale(), theirs.scale) << "run " << run << ", step " << step;
    }
  }
}

TEST(DeepSpeedLossScale, DefaultDoublesOneStepEarlier) {
  const auto steps_to_double = [](std::int64_t first_window) {
    LossScaler scaler({.initial = 8, .window = 5, .first_window = first_window});
    int steps = 0;
    while (scaler.scale() == 8) {
      EXPECT_TRUE(scaler.update(false));
      ++steps;
    }
    while (scaler.scale() == 16) {
      EXPECT_TRUE(scaler.update(false));
      ++steps;
    }
    return steps;
  };
  EXPECT_EQ(steps_to_double(0), 10);
  EXPECT_EQ(steps_to_double(6), 11);
  EXPECT_EQ(steps_to_double(2), 7);
}

TEST(LossScaleState, ResumesInTheMiddleOfAFirstWindow) {
  LossScaler whole({.initial = 8, .window = 5, .first_window = 9});
  LossScaler again({.initial = 2, .window = 5, .first_window = 9});
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(whole.update(false));
  again.restore(whole.state());
  for (int step = 3; step < 9; ++step) {
    EXPECT_EQ(again.scale(), 8) << step;
    EXPECT_TRUE(again.update(false));
  }
  EXPECT_EQ(again.scale(), 16);
}

TEST(LossScaleState, AShorterWindowHoldsFromTheNextStep) {
  LossScaler scaler({.initial = 8, .window = 5});
  scaler.restore({.scale = 4, .good_steps = 700, .lives = 1});
  EXPECT_TRUE(scaler.update(false));
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(StaticLossScale, NeverChangesAndNeverStopsTheRun) {
  LossScaler scaler({.fixed = 128, .window = 1, .hysteresis = 1, .min = 128});
  scaler.restore({.scale = 4, .good_steps = 3, .lives = 2});
  for (const bool overflowed : {true, false, true, true, false}) {
    EXPECT_TRUE(scaler.update(overflowed));
    EXPECT_EQ(scaler.scale(), 128);
  }
  // A run that goes on with a dynamic scale begins with its own first scale.
  LossScaler dynamic({.initial = 8});
  dynamic.restore(scaler.state());
  EXPECT_EQ(dynamic.scale(), 8);
}

}  // namespace
}  // namespace sluice::testing
