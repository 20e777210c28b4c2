// Keys that other keys leave without effect.
#include "configs/idle_keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/configs/notes_of.hpp"

namespace sluice::testing {
namespace {

const std::string kSomeData = "data: {text: a.txt}\n";

class KeysWithoutEffect : public ::testing::Test {
 protected:
  Scratch scratch_;
};

TEST_F(KeysWithoutEffect, AreNotes) {
  EXPECT_EQ(notes_of("train: {eval_every: 5}\n", {"train.eval_steps=0"}),
            std::vector<std::string>{"c.yaml:2:21: train.eval_every: no effect: only where "
                                     "train.eval_steps is above 0"});
  EXPECT_EQ(
      notes_of("data: {split: [1, 0]}\ntrain: {eval_every: 5}\n", {}),
      std::vector<std::string>{"c.yaml:3:21: train.eval_every: no effect: there is nothing to "
                               "evaluate on: data.valid is empty and the validation share of "
                               "data.split is 0"});
  EXPECT_EQ(
      notes_of("schedule: {min_lr: 1e-3}\n", {"schedule.type=constant"}),
      std::vector<std::string>{
          "c.yaml:2:20: schedule.min_lr: no effect: only where schedule.type is not constant"});
  EXPECT_EQ(notes_of("optimizer: {type: lion, decoupled: false, bias_correction: true}\n", {}),
            std::vector<std::string>{
                "c.yaml:2:36: optimizer.decoupled: no effect: optimizer.type is lion"});
  EXPECT_EQ(
      notes_of("schedule: {warmup: log}\n", {}),
      std::vector<std::string>{
          "c.yaml:2:20: schedule.warmup: no effect: only where schedule.warmup_steps is above 0"});
  EXPECT_EQ(notes_of("train: {dtype: fp16}\nloss_scale: {static: 1024, window: 7}\n", {}),
            std::vector<std::string>{
                "c.yaml:3:36: loss_scale.window: no effect: only where train.dtype is fp16 and "
                "loss_scale.static is none"});
  EXPECT_EQ(
      notes_of("model: {rope_factor: 4}\nzero: {stage: 1, prefetch_units: 3}\n", {}),
      (std::vector<std::string>{
          "c.yaml:2:22: model.rope_factor: no effect: only where model.rope_scaling is llama3",
          "c.yaml:3:34: zero.prefetch_units: no effect: only where zero.stage is 3, or "
          "offload.activations is host or nvme"}));
  EXPECT_TRUE(
      notes_of("zero: {stage: 1, prefetch_units: 3}\noffload: {activations: host}\n", {}).empty())
      << "activations are fetched ahead";
  EXPECT_EQ(notes_of("schedule: {wsd_decay: 5}\noffload: {chunks: 3}\n", {}),
            (std::vector<std::string>{
                "c.yaml:2:23: schedule.wsd_decay: no effect: only where schedule.type is wsd",
                "c.yaml:3:19: offload.chunks: no effect: only where offload.optimizer is host or "
                "nvme"}));
  EXPECT_EQ(
      notes_of("model: {from: hf, rope_factor: 4}\nzero: {stage: 0, prefetch_units: 1}\n", {}),
      std::vector<std::string>{})
      << "config.json may scale, and a default is no wish";
  const std::string machine = kSomeData + "offload: {nvme_path: /gone/drive, queue_depth: 8}\n";
  EXPECT_EQ(
      notes_of("", {}, machine),
      (std::vector<std::string>{
          "base.yaml:2:22: offload.nvme_path: no effect: only where a state lives on nvme",
          "base.yaml:2:48: offload.queue_depth: no effect: only where a state lives on nvme"}));
}

TEST_F(KeysWithoutEffect, OfAnotherOptimizer) {
  const auto betas = [&](const std::string& optimizer) {
    scratch_.write("c.yaml", kSomeData + "optimizer: " + optimizer);
    return load_config("c.yaml", {}).run.optimizer.betas;
  };
  using Betas = std::array<double, 2>;
  EXPECT_EQ(betas("{type: adamw}\n"), (Betas{0.9, 0.95}));
  EXPECT_EQ(betas("{type: lion}\n"), (Betas{0.9, 0.99}));
  EXPECT_EQ(betas("{type: lion, betas: [0.8, 0.9]}\n"), (Betas{0.8, 0.9}));
  EXPECT_EQ(notes_of("optimizer: {type: lion, eps: 1e-6, momentum: 0.5}\n", {}),
            (std::vector<std::string>{
                "c.yaml:2:30: optimizer.eps: no effect: optimizer.type is lion",
                "c.yaml:2:46: optimizer.momentum: no effect: optimizer.type is lion"}));
  EXPECT_EQ(
      notes_of("optimizer: {type: sgd, betas: [0.5, 0.5], momentum: 0.5}\n", {}),
      std::vector<std::string>{"c.yaml:2:31: optimizer.betas: no effect: optimizer.type is sgd"});
}

TEST_F(KeysWithoutEffect, HaveTheirDefaultWhereARuleReadsThem) {
  scratch_.write("c.yaml", kSomeData);
  const LoadedConfig config = load_config(
      "c.yaml", {"offload.image=true", "offload.speculate=auto", "offload.device_fraction=0.5",
                 "offload.host_fraction=0.5", "parallel.sequence=true", "parallel.schedule=gpipe",
                 "parallel.virtual_stages=2", "parallel.stage_layers=[3]"});
  EXPECT_EQ(config.notes.size(), 8U);
  EXPECT_FALSE(config.given("offload.image"));
  const OffloadOptions& offload = config.run.offload;
  EXPECT_FALSE(offload.image);
  EXPECT_EQ(offload.speculate, Speculation::kNever);
  EXPECT_EQ(offload.device_fraction, 0);
  EXPECT_EQ(offload.host_fraction, 0);
  const ParallelOptions& mesh = config.run.parallel;
  EXPECT_FALSE(mesh.sequence);
  EXPECT_EQ(mesh.schedule, PipelineSchedule::k1f1b);
  EXPECT_EQ(mesh.virtual_stages, 1);
  EXPECT_TRUE(mesh.stage_layers.empty());
}

}  // namespace
}  // namespace sluice::testing
