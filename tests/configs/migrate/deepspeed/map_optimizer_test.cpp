// Optimizers and schedulers.
#include <gtest/gtest.h>

#include "tests/configs/migrate/deepspeed/migrated.hpp"

namespace sluice::migrate {
namespace {

using Lines = std::vector<std::string>;

Migration with_batch(const std::string& keys, DeepSpeedOptions options = {}) {
  return migrated("{train_micro_batch_size_per_gpu: 1, " + keys + "}", std::move(options));
}

Migration scheduled(const std::string& type, const std::string& params) {
  return with_batch("optimizer: {type: \"Adam\", params: {lr: 6e-4}}, scheduler: {type: \"" + type +
                    "\", params: {" + params + "}}");
}

TEST(MapOptimizer, AdamIsAdamW) {
  const Migration migration = with_batch("optimizer: {type: \"Adam\"}");
  EXPECT_EQ(settings_of(migration, "optimizer."), (Settings{{"optimizer.type", "adamw"},
                                                            {"optimizer.lr", "0.001"},
                                                            {"optimizer.betas", "[0.9, 0.999]"},
                                                            {"optimizer.eps", "1e-08"},
                                                            {"optimizer.weight_decay", "0"},
                                                            {"optimizer.decoupled", "true"}}));
  EXPECT_EQ(class_and_note(migration, "optimizer.params.adam_w_mode"),
            "changed: optimizer.decoupled true: DeepSpeed's Adam is AdamW unless the value is "
            "false");
  EXPECT_FALSE(key_of(migration, "optimizer.params.adam_w_mode").is_written);
  EXPECT_EQ(origin_of(migration, "optimizer.lr"),
            "optimizer.params.lr 1e-3, the default of DeepSpeed 0.19.8");
}

TEST(MapOptimizer, AdamWithoutDecoupling) {
  const Migration migration = with_batch(
      "optimizer: {type: \"adam\", params: {adam_w_mode: false, weight_decay: 0.01, "
      "bias_correction: false}}");
  EXPECT_EQ(settings_of(migration)["optimizer.decoupled"], "false");
  EXPECT_EQ(settings_of(migration)["optimizer.weight_decay"], "0.01");
  EXPECT_EQ(settings_of(migration)["optimizer.bias_correction"], "false");
  EXPECT_FALSE(key_of(migration, "optimizer.params.bias_correction").stops);
  EXPECT_EQ(class_and_note(migration, "optimizer.params.weight_decay"),
            "changed: optimizer.weight_decay 0.01 with optimizer.decay: all: DeepSpeed decays "
            "vectors and biases too, Sluice's default is matrices");
  const Migration adamw = with_batch("optimizer: {type: \"AdamW\", params: {adam_w_mode: false}}");
  EXPECT_FALSE(settings_of(adamw).contains("optimizer.decoupled"));
  EXPECT_EQ(class_and_note(adamw, "optimizer.params.adam_w_mode"),
            "not_needed: DeepSpeed's AdamW ignores the key");
}

TEST(MapOptimizer, LionAndSgd) {
  EXPECT_EQ(settings_of(with_batch("optimizer: {type: \"Lion\", params: {weight_decay: 0.3}}"),
                        "optimizer."),
            (Settings{{"optimizer.type", "lion"},
                      {"optimizer.lr", "0.001"},
                      {"optimizer.betas", "[0.9, 0.999]"},
                      {"optimizer.weight_decay", "0.3"},
                      {"optimizer.decay", "all"}}));
  EXPECT_EQ(settings_of(with_batch("optimizer: {type: \"SGD\", params: {lr: 0.1}}"), "optimizer."),
            (Settings{{"optimizer.type", "sgd"},
                      {"optimizer.lr", "0.1"},
                      {"optimizer.momentum", "0"},
                      {"optimizer.weight_decay", "0"}}));
  const Migration nesterov =
      with_batch("optimizer: {type: \"SGD\", params: {lr: 0.1, momentum: 0.9, nesterov: true}}");
  EXPECT_TRUE(key_of(nesterov, "optimizer.params.nesterov").stops);
}

TEST(MapOptimizer, ATypeThatSluiceLacksStopsOnce) {
  const Migration migration =
      with_batch("optimizer: {type: \"Muon\", params: {lr: 0.1, momentum: 0.9, ns_method: \"x\"}}");
  Lines stops;
  for (const MigratedKey& key : migration.keys) {
    if (key.stops) stops.push_back(key.path);
  }
  EXPECT_EQ(stops, Lines{"optimizer.type"});
  EXPECT_EQ(class_and_note(migration, "optimizer.type"),
            "refused_unless_default: Sluice has no Muon; with --allow optimizer.type the run uses "
            "adamw");
  EXPECT_EQ(settings_of(migration)["optimizer.lr"], "0.1");
}

TEST(MapOptimizer, WithoutOptimizerTheRateIsAskedFor) {
  const Migration migration = with_batch("steps_per_print: 1");
  EXPECT_EQ(missing_of(migration),
            Lines{"optimizer: --set optimizer.lr=LR, or learning_rate with --trainer"});
  EXPECT_EQ(missing_of(with_batch("steps_per_print: 1", {.set = {"optimizer.lr=1e-3"}})), Lines{});
}

// The migration of the training arguments sets what the file lacks.
TEST(MapOptimizer, TrainingArgumentsGiveOptimizerAndScheduler) {
  const Migration migration =
      with_batch("steps_per_print: 1", {.parse = {.autos = {{"optimizer.params.lr", "5e-5"}}}});
  EXPECT_EQ(missing_of(migration), Lines{});
  EXPECT_EQ(migration.notes, Lines{});
  EXPECT_EQ(settings_of(migration, "optimizer."), Settings{});
  EXPECT_EQ(settings_of(migration, "schedule."), Settings{});
}

TEST(MapOptimizer, NarrowStates) {
  const std::string adam = "optimizer: {type: \"Adam\", params: {fp32_optimizer_states: false}}, ";
  const std::string offload =
      "zero_optimization: {stage: 2, offload_optimizer: {device: \"cpu\"}}, ";
  const std::string path = "optimizer.params.fp32_optimizer_states";
  const Migration there = with_batch(adam + offload + "bf16: {enabled: true}");
  EXPECT_EQ(settings_of(there)["offload.states_dtype"], "bf16");
  EXPECT_FALSE(key_of(there, path).stops);
  const Migration on_device = with_batch(adam + "bf16: {enabled: true}");
  EXPECT_EQ(settings_of(on_device)["offload.states_dtype"], "bf16");
  EXPECT_FALSE(key_of(on_device, path).stops);
  EXPECT_TRUE(key_of(with_batch(adam + offload + "fp16: {enabled: true}"), path).stops);
  EXPECT_EQ(class_and_note(with_batch(adam + offload + "steps_per_print: 1"), path),
            "not_needed: the model's dtype is fp32");
}

TEST(MapOptimizer, ParametersOfLamb) {
  const Migration migration =
      with_batch("fp16: {enabled: true}, optimizer: {type: \"Lamb\", params: {max_coeff: 0.5}}");
  EXPECT_EQ(class_and_note(migration, "optimizer.params.max_coeff"),
            "refused_unless_default: a parameter of LAMB, which Sluice does not have");
  Migration settled = migration;
  settle_allowed(settled, {});
  EXPECT_EQ(errors_of(settled).front().substr(errors_of(settled).front().find(": ") + 2),
            "optimizer.type: \"Lamb\" stops the migration: Sluice has no Lamb; with --allow "
            "optimizer.type the run uses adamw; choose AdamW, Adam, Lion or SGD, or go on without "
            "its effect: --allow optimizer.type");
}

TEST(MapOptimizer, ATypeWithoutRowsKeepsItsRate) {
  const std::string text =
      "optimizer: {type: \"OneBitAdam\", params: {lr: 3e-5, betas: [0.8, 0.9], eps: 1e-6, "
      "weight_decay: 0.01, freeze_step: 400}}";
  const Migration migration = with_batch(text, {.parse = {.version = {0, 16, 0}}});
  EXPECT_EQ(settings_of(migration, "optimizer."), (Settings{{"optimizer.type", "adamw"},
                                                            {"optimizer.lr", "3e-05"},
                                                            {"optimizer.betas", "[0.8, 0.9]"},
                                                            {"optimizer.eps", "1e-06"},
                                                            {"optimizer.weight_decay", "0.01"},
                                                            {"optimizer.decay", "all"}}));
  EXPECT_EQ(class_and_note(migration, "optimizer.params.freeze_step"),
            "refused_unless_default: a parameter of OneBitAdam, which Sluice does not have");
  const Migration open = with_batch("optimizer: {type: \"OneBitAdam\", params: {lr: \"auto\"}}",
                                    {.parse = {.version = {0, 16, 0}}});
  EXPECT_EQ(missing_of(open), Lines{"optimizer.params.lr: --set optimizer.lr=LR, or learning_rate "
                                    "with --trainer"});
  EXPECT_FALSE(settings_of(open).contains("optimizer.lr"));
}

TEST(MapOptimizer, NoDecay) {
  const Migration migration =
      with_batch("optimizer: {type: \"AdamW\", params: {lr: 1e-3, weight_decay: 0.0}}");
  EXPECT_EQ(class_and_note(migration, "optimizer.params.weight_decay"),
            "mapped: optimizer.weight_decay 0: nothing decays");
  EXPECT_EQ(settings_of(migration).at("optimizer.weight_decay"), "0");
  EXPECT_EQ(settings_of(migration).count("optimizer.decay"), 0U);
}

TEST(MapSchedule, WithoutSchedulerTheRateIsConstant) {
  const Migration migration = with_batch("optimizer: {type: \"Adam\"}");
  EXPECT_EQ(settings_of(migration, "schedule."), (Settings{{"schedule.type", "constant"}}));
  EXPECT_EQ(origin_of(migration, "schedule.type"), "no scheduler, the default of DeepSpeed 0.19.8");
  EXPECT_FALSE(key_of(migration, "scheduler").is_written);
}

TEST(MapSchedule, WarmupLR) {
  const Migration migration = scheduled("WarmupLR", "warmup_min_lr: 1e-5, warmup_max_lr: 2e-4");
  EXPECT_EQ(settings_of(migration, "schedule."), (Settings{{"schedule.type", "constant"},
                                                           {"schedule.counting", "deepspeed"},
                                                           {"schedule.warmup", "log"},
                                                           {"schedule.warmup_steps", "1000"},
                                                           {"schedule.warmup_min_lr", "1e-05"}}));
  EXPECT_EQ(settings_of(migration)["optimizer.lr"], "2e-04");
  EXPECT_EQ(class_and_note(migration, "optimizer.params.lr"),
            "changed: optimizer.lr 2e-04: warmup_max_lr of the scheduler takes the place of lr "
            "6e-4");
  EXPECT_EQ(origin_of(migration, "schedule.warmup"),
            "scheduler.params.warmup_type log, the default of DeepSpeed 0.19.8");
  EXPECT_EQ(settings_of(scheduled("WarmupLR", ""))["optimizer.lr"], "6e-04");
}

TEST(MapSchedule, WarmupDecayLR) {
  const Migration migration = scheduled(
      "WarmupDecayLR", "total_num_steps: 900, warmup_type: \"linear\", warmup_min_lr: 1e-5");
  EXPECT_EQ(settings_of(migration, "schedule."), (Settings{{"schedule.type", "linear"},
                                                           {"schedule.counting", "deepspeed"},
                                                           {"schedule.warmup", "linear"},
                                                           {"schedule.warmup_steps", "1000"},
                                                           {"schedule.warmup_min_lr", "1e-05"},
                                                           {"schedule.min_lr", "1e-05"},
                                                           {"schedule.decay_steps", "900"}}));
  // The default of warmup_max_lr is not the optimizer's lr.
  EXPECT_EQ(settings_of(migration)["optimizer.lr"], "0.001");
}

TEST(MapSchedule, WhatIsSaidOfTheWarmUp) {
  const Migration migration = with_batch(
      "optimizer: {type: \"Adam\"}, scheduler: {type: \"WarmupDecayLR\", params: "
      "{total_num_steps: 100, warmup_max_lr: 0.01}}");
  EXPECT_EQ(class_and_note(migration, "scheduler.params.warmup_max_lr"),
            "mapped: optimizer.lr 0.01, in place of the optimizer's lr");
  EXPECT_EQ(class_and_note(migration, "scheduler.params.warmup_type"),
            "mapped: schedule.warmup log: the rate grows as log(i) / log(n), not linearly");
}

TEST(MapSchedule, WarmupCosineLR) {
  const Migration migration = scheduled(
      "WarmupCosineLR", "total_num_steps: 900, warmup_min_ratio: 0.1, warmup_num_steps: 1");
  EXPECT_EQ(settings_of(migration, "schedule."), (Settings{{"schedule.type", "cosine"},
                                                           {"schedule.counting", "deepspeed"},
                                                           {"schedule.warmup", "log"},
                                                           {"schedule.warmup_steps", "1"},
                                                           {"schedule.warmup_min_lr", "10%"},
                                                           {"schedule.min_lr", "0.01%"},
                                                           {"schedule.decay_steps", "900"}}));
  EXPECT_EQ(settings_of(migration)["optimizer.lr"], "6e-04");
}

TEST(MapSchedule, RatesAboveTheHighest) {
  EXPECT_EQ(errors_of(scheduled("WarmupLR", "warmup_min_lr: 1e-2")),
            Lines{"f:1:123: scheduler.params.warmup_min_lr: 0.01 is above the learning rate "
                  "6e-04, Sluice has no schedule that falls first; lower the value, or raise the "
                  "learning rate"});
  EXPECT_EQ(errors_of(scheduled("WarmupCosineLR", "total_num_steps: 9, cos_min_ratio: 1.5")),
            Lines{"f:1:149: scheduler.params.cos_min_ratio: 1.5 of the learning rate is above the "
                  "learning rate, Sluice has no such schedule; write at most 1"});
}

TEST(MapSchedule, OtherSchedulersStop) {
  const Migration migration = scheduled("OneCycle", "cycle_min_lr: 0.1, cycle_max_lr: 0.2");
  Lines stops;
  for (const MigratedKey& key : migration.keys) {
    if (key.stops) stops.push_back(key.path);
  }
  EXPECT_EQ(stops, Lines{"scheduler.type"});
}

TEST(MapSchedule, Step1OfOldVersions) {
  const Migration migration =
      with_batch("optimizer: {type: \"Adam\"}, scheduler: {type: \"WarmupLR\", params: {}}",
                 {.parse = {.version = {0, 15, 2}}});
  EXPECT_EQ(class_and_note(migration, "scheduler.type"),
            "mapped: schedule.type constant with counting: deepspeed: the same learning rate at "
            "every step; DeepSpeed before 0.15.3 takes step 1 with the optimizer's lr, Sluice does "
            "not");
}

}  // namespace
}  // namespace sluice::migrate
