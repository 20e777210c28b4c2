// Learning rates of migrated runs equal those of Megatron-LM's OptimizerParamScheduler and
// torchtitan's scheduler, step by step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "configs/migrate/peers/megatron.hpp"
#include "configs/migrate/peers/torchtitan.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "configs/reader.hpp"
#include "runtime/run/train_options.hpp"

namespace sluice::migrate {
namespace {

struct Decay {
  std::string style;
  double warmup = 0;  // samples, as all numbers of Megatron-LM's scheduler
  double end = 0;
  double low = 0;  // lr-warmup-init
  double min_lr = 0;
  double fall = 0;
};

// The rate of the update that follows `samples` samples; the highest rate is 1.
double megatron_rate(const Decay& decay, double samples) {
  if (decay.warmup > 0 && samples <= decay.warmup) {
    return decay.low + (1 - decay.low) * samples / decay.warmup;
  }
  if (decay.style == "constant") return 1;
  if (samples > decay.end) return decay.min_lr;
  const double ratio = (samples - decay.warmup) / (decay.end - decay.warmup);
  double share = 1 - ratio;
  if (decay.style == "cosine") share = 0.5 * (std::cos(std::numbers::pi * ratio) + 1);
  if (decay.style == "WSD") {
    const double begin = decay.end - decay.fall;
    share = samples <= begin ? 1 : 1 - (samples - begin) / decay.fall;
  }
  return decay.min_lr + share * (1 - decay.min_lr);
}

TEST(PeerSchedules, EqualMegatronsAtEveryStep) {
  const std::string model =
      "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --micro-batch-size 8 --global-batch-size 8 --vocab-size 64 "
      "--lr 1.0 --train-iters 2000 ";
  const std::vector<std::pair<std::string, Decay>> cases{
      {"", {"linear", 0, 16000, 0, 0, 0}},
      {"--lr-warmup-iters 100 --min-lr 0.1", {"linear", 800, 16000, 0, 0.1, 0}},
      {"--lr-decay-style cosine --lr-warmup-fraction 0.01 --lr-decay-iters 1500 --min-lr 0.05",
       {"cosine", 120, 12000, 0, 0.05, 0}},
      {"--lr-decay-style cosine --lr-warmup-iters 7 --lr-warmup-init 0.2",
       {"cosine", 56, 16000, 0.2, 0, 0}},
      {"--lr-decay-style constant --lr-warmup-iters 9", {"constant", 72, 16000, 0, 0, 0}},
      {"--lr-decay-style WSD --lr-wsd-decay-style linear --lr-wsd-decay-iters 300 "
       "--lr-warmup-iters 50 --min-lr 0.01",
       {"WSD", 400, 16000, 0, 0.01, 2400}},
  };
  for (const auto& [arguments, decay] : cases) {
    const Migration result = migrate_megatron(model + arguments, {});
    ASSERT_FALSE(result.is_stopped()) << arguments;
    const RunConfig run = load_config_text("m.yaml", write_yaml(result), {}).run;
    for (int step = 1; step <= 2000; ++step) {
      ASSERT_NEAR(learning_rate(run.optimizer, run.schedule, run.train.steps, step),
                  megatron_rate(decay, 8.0 * (step - 1)), 1e-12)
          << arguments << " step " << step;
    }
  }
}

// `step` counts from 0, as torchtitan counts; the highest rate is 1.
double torchtitan_rate(int step, int warmup, int stable, int decay, double least) {
  if (step < warmup) return static_cast<double>(step + 1) / warmup;
  if (step < warmup + stable) return 1;
  const double progress = static_cast<double>(step + 1 - warmup - stable) / decay;
  return least + (1 - least) * (1 - progress);
}

TEST(PeerSchedules, EqualTorchtitansAtEveryStep) {
  struct Case {
    std::string keys;
    int warmup, decay;
    double least;
  };
  const std::vector<Case> cases{
      {"", 200, 1800, 0},
      {"warmup_steps = 10\nmin_lr_factor = 0.1\n", 10, 1990, 0.1},
      {"warmup_steps = 10\ndecay_ratio = 0.25\n", 10, 500, 0},
      {"warmup_steps = 1800\ndecay_ratio = 0.5\n", 1800, 200, 0},
      {"warmup_steps = 0\n", 0, 2000, 0},
      {"warmup_steps = 2000\n", 2000, 0, 0},
  };
  for (const Case& each : cases) {
    const Migration result = migrate_torchtitan(
        "[training]\nsteps = 2000\n[optimizer]\nlr = 1.0\n[lr_scheduler]\n" + each.keys, {});
    ASSERT_FALSE(result.is_stopped()) << each.keys;
    const RunConfig run = load_config_text("t.yaml", write_yaml(result), {}).run;
    const int stable = 2001 - each.warmup - each.decay;
    for (int step = 1; step <= 2000; ++step) {
      ASSERT_NEAR(learning_rate(run.optimizer, run.schedule, run.train.steps, step),
                  torchtitan_rate(step - 1, each.warmup, stable, each.decay, each.least), 1e-12)
          << each.keys << " step " << step;
    }
  }
}

// Sluice's cosine has no plateau of one step: step N has the rate of torchtitan's step N + 1.
TEST(PeerSchedules, ACosineIsAStepBeforeTorchtitans) {
  const Migration result = migrate_torchtitan(
      "[training]\nsteps = 30\n[optimizer]\nlr = 1.0\n[lr_scheduler]\nwarmup_steps = 5\n"
      "decay_type = \"cosine\"\n",
      {});
  ASSERT_FALSE(result.is_stopped());
  const RunConfig run = load_config_text("t.yaml", write_yaml(result), {}).run;
  for (int step = 6; step < 30; ++step) {
    const double progress = 1 - torchtitan_rate(step, 5, 1, 25, 0);  // of the step after `step`
    EXPECT_NEAR(learning_rate(run.optimizer, run.schedule, run.train.steps, step),
                0.5 * (1 + std::cos(std::numbers::pi * progress)), 1e-12)
        << step;
  }
  const std::string note =
      "the fall begins a step earlier here: step N has the rate of torchtitan's step N + 1";
  EXPECT_TRUE(std::any_of(result.keys.begin(), result.keys.end(), [&](const MigratedKey& key) {
    return key.path == "lr_scheduler.decay_type" && key.note == note;
  }));
}

}  // namespace
}  // namespace sluice::migrate
