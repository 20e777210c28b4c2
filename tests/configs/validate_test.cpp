// Rules between keys: each equation with its numbers.
#include "configs/validate.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "base/error.hpp"
#include "configs/derived.hpp"
#include "configs/schema.hpp"
#include "tests/configs/notes_of.hpp"

namespace sluice::testing {
namespace {

const std::string kData = "data: {text: a.txt}\n";

class Validate : public ::testing::Test {
 protected:
  // What validate() says of this text; empty where it is content.
  std::string complaint(const std::string& yaml, int world, std::optional<int> gpus = {},
                        const std::vector<std::string>& sets = {}) {
    scratch_.write("c.yaml", yaml);
    try {
      validate(load_config("c.yaml", sets), world, gpus);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  Scratch scratch_;
};

TEST_F(Validate, BatchIsMicroTimesAccumulationTimesRanks) {
  EXPECT_EQ(
      complaint(kData + "train: {micro_batch: 4, global_batch: 10}\n", 2),
      "c.yaml:2:39: train.global_batch: global_batch = micro_batch x accumulation x dp has no "
      "whole accumulation >= 1: 10 = 4 x 1.25 x 2; the nearest that fit are 8 and 16");
  EXPECT_EQ(
      complaint(kData + "train: {micro_batch: 4, global_batch: 8}\n", 3),
      "c.yaml:2:39: train.global_batch: global_batch = micro_batch x accumulation x dp has no "
      "whole accumulation >= 1: 8 = 4 x 0.667 x 3; the smallest that fits is 12");
  EXPECT_EQ(complaint(kData + "train: {micro_batch: 4, global_batch: 24}\n", 3), "");
  EXPECT_EQ(complaint(kData + "train: {micro_batch: 5, global_batch: auto}\n", 3), "");
}

TEST_F(Validate, WorldIsTensorTimesPipelineTimesData) {
  EXPECT_EQ(
      complaint(kData + "parallel: {data: 3}\n", 4),
      "c.yaml:2:18: parallel.data: world = tensor x pipeline x data does not hold: 4 != 1 x 1 x "
      "3; write auto to let it follow");
  EXPECT_EQ(complaint(kData + "parallel: {data: 4}\n", 4), "");
  EXPECT_EQ(complaint(kData + "parallel: {pipeline: 2}\n", 3),
            "c.yaml:2:22: parallel.pipeline: world must be a multiple of tensor x pipeline: 3 % (1 "
            "x 2) = 1");
  EXPECT_TRUE(complaint(kData + "parallel: {pipeline: 2147483647, tensor: 2147483647}\n", 4)
                  .starts_with("c.yaml:2:42: parallel.tensor: world must be a multiple of tensor x "
                               "pipeline: 4 % (2147483647 x 2147483647) = 4\n"));
  EXPECT_EQ(complaint(kData, 0),
            "c.yaml (default): launch.nproc: world >= 1 does not hold: 0 >= 1");
}

TEST_F(Validate, MlflowHasAFolder) {
  EXPECT_EQ(complaint(kData + "output: {mlflow: mlruns}\n", 1), "");
  EXPECT_EQ(complaint(kData + "output: {mlflow: 'http://localhost:5000'}\n", 1),
            "c.yaml:2:18: output.mlflow: 'http://localhost:5000' is an address, and a run writes "
            "to a folder and talks to no server; name a folder, which `mlflow ui "
            "--backend-store-uri FOLDER` shows");
  EXPECT_NE(complaint(kData + "output: {mlflow: 'sqlite:///x.db'}\n", 1), "");
}

TEST_F(Validate, HeadsDivideHidden) {
  EXPECT_EQ(complaint(kData + "model: {hidden: 250, heads: 4}\n", 1),
            "c.yaml:2:29: model.heads: hidden must be a multiple of heads: 250 % 4 = 2");
  EXPECT_EQ(complaint(kData + "model: {hidden: 770}\n", 1),
            "c.yaml:2:17: model.hidden: hidden must be a multiple of heads: 770 % 12 = 2");
  EXPECT_EQ(complaint(kData + "model: {heads: 4, hidden: 256, kv_heads: 2}\n", 1),
            "c.yaml:2:42: model.kv_heads: a gpt2 has kv_heads = heads: 2 != 4");
  EXPECT_EQ(complaint(kData + "model: {heads: 4, hidden: 256, kv_heads: 4}\n", 1), "");
  EXPECT_TRUE(
      complaint(kData + "model: {type: llama, kv_heads: 5}\n", 1)
          .starts_with("c.yaml:2:32: model.kv_heads: heads must be a multiple of kv_heads: 12 "
                       "% 5 = 2"));
  EXPECT_EQ(complaint(kData + "model: {type: llama, heads: 12, kv_heads: 3}\n", 1), "");
}

TEST_F(Validate, HeadsOfTheirOwnWidth) {
  EXPECT_EQ(complaint(kData + "model: {type: llama, hidden: 250, heads: 4, head_dim: 64}\n", 1),
            "");
  EXPECT_EQ(complaint(kData + "model: {type: llama, head_dim: 63}\n", 1),
            "c.yaml:2:32: model.head_dim: rotary positions turn pairs, head_dim must be even: 63");
  EXPECT_EQ(
      complaint(kData + "model: {type: mistral, hidden: 60, heads: 4}\n", 1),
      "c.yaml:2:43: model.heads: rotary positions turn pairs, hidden / heads must be even: 60 / "
      "4 = 15");
  EXPECT_EQ(complaint(kData + "model: {head_dim: 32}\n", 1),
            "c.yaml:2:19: model.head_dim: a gpt2 has head_dim x heads = hidden: 32 x 12 != 768");
  EXPECT_EQ(complaint(kData + "model: {head_dim: 64}\n", 1), "");
}

TEST_F(Validate, WhatAFamilyDoesNotHave) {
  EXPECT_EQ(
      complaint(kData + "model: {attention_bias: none}\n", 1),
      "c.yaml:2:25: model.attention_bias: a gpt2 has biases on all projections; leave it out");
  EXPECT_EQ(
      complaint(kData + "model: {rope_theta: 5e5}\n", 1),
      "c.yaml:2:21: model.rope_theta: a gpt2 learns its positions and has no rotary ones; leave "
      "it out");
  EXPECT_EQ(complaint(kData + "model: {type: qwen2, sliding_window: 64}\n", 1),
            "c.yaml:2:38: model.sliding_window: only a mistral has a sliding window; leave it out");
  EXPECT_EQ(complaint(kData + "model: {type: mistral, sliding_window: 64}\n", 1), "");
  EXPECT_EQ(
      complaint(kData + "model: {type: llama, rope_scaling: llama3, "
                        "rope_high_freq_factor: 0.5}\n",
                1),
      "c.yaml:2:67: model.rope_high_freq_factor: rope_low_freq_factor < rope_high_freq_factor "
      "does not hold: 1 >= 0.5");
}

TEST_F(Validate, Schedule) {
  EXPECT_EQ(
      complaint(kData + "train: {steps: 100}\nschedule: {warmup_steps: 200}\n", 1),
      "c.yaml:3:26: schedule.warmup_steps: warmup_steps <= train.steps does not hold: 200 > 100; "
      "a share such as 5% follows train.steps (c.yaml:2:16)");
  EXPECT_EQ(
      complaint(kData + "schedule: {warmup_steps: 60, decay_steps: 50}\n", 1),
      "c.yaml:2:26: schedule.warmup_steps: warmup_steps <= decay_steps does not hold: 60 > 50");
  EXPECT_EQ(
      complaint(
          kData + "schedule: {type: wsd, warmup_steps: 60, decay_steps: 100, wsd_decay: 50}\n", 1),
      "c.yaml:2:70: schedule.wsd_decay: warmup_steps + wsd_decay <= decay_steps does not hold: 60 "
      "+ 50 "
      "> 100");
  EXPECT_EQ(complaint(kData + "optimizer: {lr: 1e-4}\nschedule: {min_lr: 1e-3}\n", 1),
            "c.yaml:3:20: schedule.min_lr: min_lr <= lr does not hold: 0.001 > 1e-04");
  EXPECT_EQ(complaint(kData + "schedule: {min_lr: 3e-4, warmup_steps: 1k}\n", 1), "");
}

TEST_F(Validate, Zero) {
  EXPECT_EQ(
      complaint(kData + "zero: {stage: 2, reduce_every: step}\ntrain: {global_batch: 4}\n", 1),
      "c.yaml:2:32: zero.reduce_every: step needs stage <= 1 or train.accumulation_order: "
      "layer; a rank of stage 2 keeps no whole gradient between micro-batches in micro order");
  EXPECT_EQ(complaint(kData + "zero: {stage: 2, reduce_every: step}\n"
                              "train: {accumulation_order: layer, global_batch: 4}\n",
                      1),
            "");
  EXPECT_EQ(complaint(kData + "zero: {stage: 2, reduce_every: step}\n", 1), "");  // 1 micro-batch
  EXPECT_EQ(complaint(kData + "zero: {stage: 1, reduce_every: step}\n", 1), "");
  EXPECT_EQ(complaint(kData + "zero: {stage: 3, prefetch_units: 6}\nmodel: {layers: 4}\n", 1),
            "c.yaml:2:34: zero.prefetch_units: prefetch_units <= layers + 1 (all units but the one "
            "that runs) does not hold: 6 > 4 + 1");
  EXPECT_EQ(complaint(kData + "zero: {stage: 3, prefetch_units: 5}\nmodel: {layers: 4}\n", 1), "");
}

TEST_F(Validate, WarmUpIsAShareOfWhatTheOverrideLeaves) {
  const std::string file = "train: {steps: 800}\nschedule: {type: cosine, warmup_steps: 5%}\n";
  EXPECT_EQ(complaint(kData + file, 1, {}, {"train.steps=20"}), "");
  EXPECT_TRUE(notes_of(file, {"train.steps=20"}).empty());
  ScheduleOptions schedule{.warmup_steps = StepCount::share_of_all(0.05)};
  EXPECT_EQ(schedule.warmup_steps.of(800), 40);
  EXPECT_EQ(schedule.warmup_steps.of(4), 1);
  EXPECT_EQ(schedule.warmup_steps.of(0), 0);
  for (const char* bad : {"0%", "101%", "-5%", "%", "5 %", "5%%"}) {
    EXPECT_NE(complaint(kData, 1, {}, {std::string("schedule.warmup_steps=") + bad})
                  .find("expected steps such as 500, or a share of train.steps such as 5%"),
              std::string::npos)
        << bad;
  }
  for (const char* good : {"5%", "6.25%", "33.3%", "0.1%", "100%", "1k"}) {
    const LoadedConfig config =
        load_config("c.yaml", {std::string("schedule.warmup_steps=") + good});
    scratch_.write("again.yaml", config.resolved_yaml());
    EXPECT_EQ(load_config("again.yaml", {}).run.schedule.warmup_steps,
              config.run.schedule.warmup_steps)
        << good;
  }
}

// A number of steps in a file is the user's; a run cut short by an override ends in the rise.
TEST_F(Validate, ARunThatAnOverrideCutsShortEndsInItsWarmUp) {
  const std::string file = "train: {steps: 800}\nschedule: {warmup_steps: 50}\n";
  EXPECT_EQ(notes_of(file, {"train.steps=20"}),
            std::vector<std::string>{
                "c.yaml:3:26: schedule.warmup_steps: the run ends in its warm-up, after 20 of 50 "
                "steps; a share such as 5% follows train.steps"});
  EXPECT_EQ(notes_of("train: {steps: 20}\n", {}, kData + "schedule: {warmup_steps: 50}\n").size(),
            1U);
  EXPECT_EQ(
      complaint(kData + "train: {steps: 20}\nschedule: {warmup_steps: 50}\n", 1).substr(0, 11),
      "c.yaml:3:26");
}

TEST_F(Validate, LearningRatesAreNumbersOrSharesOfLr) {
  const std::string file = kData + "optimizer: {lr: 2e-3}\n";
  const auto message = [&](const std::string& set) {
    return complaint(file, 1, {}, {"schedule.warmup_steps=9", "schedule." + set});
  };
  for (const char* const bad : {"101%", "-5%", "5 %", "5%%", "x", ".nan"}) {
    EXPECT_EQ(message(std::string("min_lr=") + bad),
              std::string("--set schedule.min_lr=") + bad + ": schedule.min_lr: found '" + bad +
                  "', expected a number >= 0, or a share of optimizer.lr such as 10%");
  }
  EXPECT_EQ(message("min_lr=-1"),
            "--set schedule.min_lr=-1: schedule.min_lr: '-1' is out of range, expected a number >= "
            "0, or a share of optimizer.lr such as 10%");
  EXPECT_EQ(message("warmup_min_lr=3e-3"),
            "--set schedule.warmup_min_lr=3e-3: schedule.warmup_min_lr: warmup_min_lr <= lr does "
            "not hold: 0.003 > 0.002");
  for (const char* const good : {"0%", "0.01%", "33.3%", "100%", "2e-3", ".001", "+1E-3", "0"}) {
    EXPECT_EQ(message(std::string("min_lr=") + good), "") << good;
    scratch_.write("c.yaml", file);
    const LoadedConfig config = load_config("c.yaml", {std::string("schedule.min_lr=") + good});
    scratch_.write("again.yaml", config.resolved_yaml());
    EXPECT_EQ(load_config("again.yaml", {}).run.schedule.min_lr, config.run.schedule.min_lr);
  }
  scratch_.write("c.yaml", file + "schedule: {min_lr: 0.01%}\n");
  const RunConfig run = load_config("c.yaml", {}).run;
  EXPECT_DOUBLE_EQ(run.schedule.min_lr.of(run.optimizer.lr), 2e-7);
}

TEST_F(Validate, AConstantRateHasNoDecaySteps) {
  EXPECT_EQ(complaint(kData + "train: {steps: 20}\nschedule: {type: constant, warmup_steps: 50, "
                              "decay_steps: 100}\n",
                      1)
                .substr(0, 73),
            "c.yaml:3:42: schedule.warmup_steps: warmup_steps <= train.steps does not ");
}

TEST_F(Validate, OnlyDeepSpeedsScheduleMayWarmUpLongerThanTheRun) {
  const std::string file = kData + "train: {steps: 20}\nschedule: {warmup_steps: 50, counting: ";
  EXPECT_EQ(complaint(file + "deepspeed}\n", 1), "");
  EXPECT_EQ(complaint(file + "from_zero}\n", 1),
            "c.yaml:3:26: schedule.warmup_steps: warmup_steps <= train.steps does not hold: 50 > "
            "20; a share such as 5% follows train.steps (c.yaml:2:16)");
}

TEST_F(Validate, NcclNeedsAGpuForEachRank) {
  const std::string yaml = kData + "launch: {backend: nccl, nproc: 4}\n";
  EXPECT_EQ(
      complaint(yaml, 4, 2),
      "c.yaml:2:32: launch.nproc: nccl runs at most one rank on a GPU: nproc <= GPUs does not "
      "hold: 4 > 2; lower nproc or use backend gloo");
  EXPECT_EQ(complaint(yaml, 4, 4), "");
  EXPECT_EQ(complaint(yaml, 4), "");
}

TEST_F(Validate, RestartsNeedCheckpoints) {
  const std::string restarts = "launch.max_restarts=3";
  EXPECT_EQ(complaint(kData, 2, {}, {restarts, "checkpoint.every=30min"}), "");
  EXPECT_EQ(
      complaint(kData, 2, {}, {restarts}),
      "--set launch.max_restarts=3: launch.max_restarts: 3 restarts need checkpoints to go on "
      "from; set checkpoint.every");
}

TEST_F(Validate, SaysEverythingAtOnceAndBlamesTheOverride) {
  EXPECT_EQ(complaint("model: {hidden: 250}\n", 2, {}, {"model.heads=4", "parallel.pipeline=3"}),
            "--set parallel.pipeline=3: parallel.pipeline: world must be a multiple of tensor x "
            "pipeline: 2 % (1 x 3) = 2\n"
            "--set model.heads=4: model.heads: hidden must be a multiple of heads: 250 % 4 = 2\n"
            "c.yaml (default): data.text: one of data.text, data.train, data.blend and data.sft "
            "must name "
            "what to train on");
}

TEST_F(Validate, SelectiveRecomputationNeedsExplicitUnits) {
  const std::string selective = "recompute.mode=selective";
  EXPECT_EQ(complaint(kData, 2, {}, {selective}), "");
  EXPECT_EQ(complaint(kData, 2, {}, {selective, "model.explicit_units=false"}),
            "--set recompute.mode=selective: recompute.mode: selective needs "
            "model.explicit_units: true: libtorch's autograd keeps what attention made; "
            "set it, or use full");
}

TEST_F(Validate, ThreadsOfOneProcessHaveOneHost) {
  EXPECT_EQ(complaint(kData, 2, {}, {"launch.hostfile=hosts"}), "");
  EXPECT_EQ(complaint(kData, 2, {}, {"launch.backend=local"}), "");
  EXPECT_EQ(complaint(kData, 2, {}, {"launch.backend=local", "launch.hostfile=hosts"}),
            "--set launch.hostfile=hosts: launch.hostfile: ranks that are threads of one process "
            "(backend local) have one host; leave out hostfile, or backend");
}

TEST(Derive, FillsInWhatIsAuto) {
  RunConfig run;
  run.train.micro_batch = 3;
  run.train.steps = 55;
  run.model.hidden = 96;
  run.model.heads = 6;
  Derived derived = derive(run, 5);
  EXPECT_EQ(derived.dp, 5);
  EXPECT_EQ(derived.global_batch, 15);
  EXPECT_EQ(derived.accumulation, 1);
  EXPECT_EQ(derived.kv_heads, 6);
  EXPECT_EQ(derived.head_size, 16);
  EXPECT_EQ(derived.ffn, 384);
  run.model.type = ModelType::kLlama;
  EXPECT_EQ(derive(run, 5).ffn, 256);  // 8 x 96 / 3
  run.model.hidden = 100;
  run.model.head_dim = 24;
  EXPECT_EQ(derive(run, 5).ffn, 320);  // 266.7, to a multiple of 64
  EXPECT_EQ(derive(run, 5).head_size, 24);
  run.model = {.hidden = 96, .heads = 6};
  EXPECT_EQ(derived.decay_steps, 55);
  EXPECT_EQ(derived.wsd_decay, 0);

  run.train.global_batch = 60;
  run.parallel.tensor = 2;
  run.model.ffn = 100;
  run.schedule.type = ScheduleType::kWsd;
  run.schedule.decay_steps = 7;
  derived = derive(run, 10);
  EXPECT_EQ(derived.dp, 5);
  EXPECT_EQ(derived.accumulation, 4);
  EXPECT_EQ(derived.ffn, 100);
  EXPECT_EQ(derived.decay_steps, 7);
  EXPECT_EQ(derived.wsd_decay, 1);
}

}  // namespace
}  // namespace sluice::testing
