// fp16: the published rule for the scale, and a run that overflows and recovers on every rank
// alike.
#include <gtest/gtest.h>

#include "tests/runtime/engine/world.hpp"
#include "zero/loss_scaler.hpp"

namespace sluice::testing {
namespace {

TEST(LossScaler, HalvesWhenItsLivesAreUsedUpAndDoublesAfterAWindow) {
  LossScaler scaler({.initial = 16, .window = 3, .hysteresis = 2, .min = 1});
  std::vector<double> history;
  for (const bool overflow : {true, false, true, true, false, false, false, true, true, false}) {
    EXPECT_TRUE(scaler.update(overflow));
    history.push_back(scaler.scale());
  }
  // The first overflow only costs a life; lives come back with growth, not with good steps.
  EXPECT_EQ(history, (std::vector<double>{16, 16, 8, 4, 4, 4, 8, 8, 4, 4}));
}

TEST(LossScaler, StopsAtItsFloor) {
  LossScaler scaler({.initial = 4, .window = 1000, .hysteresis = 1, .min = 1});
  EXPECT_TRUE(scaler.update(true));
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_FALSE(scaler.update(true));
}

// A scale that is far too large at first: steps are skipped until it has come down, then the run
// learns.
TEST(Fp16, OverflowsSkipTheStepOnEveryRankAndTheRunRecovers) {
  for (const int stage : {0, 1, 2, 3}) {
    EngineOptions options = tiny_options();
    options.dp = 2;
    options.zero.stage = stage;
    options.train.dtype = DType::kFloat16;
    std::vector<std::vector<double>> scales(2);
    std::vector<std::vector<double>> losses(2);
    run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
      LossScaler scaler({.initial = 1 << 28, .window = 1000, .hysteresis = 2, .min = 1});
      std::int64_t updates = 0;
      for (int step = 1; step <= 40; ++step) {
        const StepResult result = engine.train_step(
            {.step = step, .lr = 1e-2, .update = updates + 1, .loss_scale = scaler.scale()});
        EXPECT_TRUE(result.finite() || result.overflowed());
        updates += result.finite() ? 1 : 0;
        EXPECT_TRUE(scaler.update(result.overflowed()));
        scales[static_cast<std::size_t>(rank)].push_back(scaler.scale());
        losses[static_cast<std::size_t>(rank)].push_back(result.loss);
      }
      EXPECT_LT(updates, 40);
      EXPECT_GT(updates, 15);
    });
    EXPECT_EQ(scales[0], scales[1]);
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_LT(scales[0].back(), 1 << 28);
    EXPECT_LT(losses[0].back(), 0.9 * losses[0].front());
  }
}

// Powers of two scale without rounding: where nothing overflows or underflows, fp16 at two scales
// agrees.
TEST(Fp16, ClippingAndNormSeeUnscaledGradients) {
  EngineOptions options = tiny_options();
  options.train.dtype = DType::kFloat16;
  std::vector<double> norms;
  for (const double scale : {256.0, 1024.0}) {
    run_world(options, Wire::kLocal, [&](int, Engine& engine) {
      norms.push_back(engine.train_step({.step = 1, .lr = 1e-2, .loss_scale = scale}).grad_norm);
    });
  }
  EXPECT_NEAR(norms[1] / norms[0], 1.0, 1e-2);
}

}  // namespace
}  // namespace sluice::testing
