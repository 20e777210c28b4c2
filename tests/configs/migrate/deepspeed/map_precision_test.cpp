// The dtype, the loss scale and dtypes of gradients.
#include <gtest/gtest.h>

#include "tests/configs/migrate/deepspeed/migrated.hpp"

namespace sluice::migrate {
namespace {

using Lines = std::vector<std::string>;

TEST(MapPrecision, DynamicLossScale) {
  const Migration migration = with_adam(
      "zero_optimization: {stage: 2}, fp16: {enabled: true, initial_scale_power: 12, "
      "loss_scale_window: 500, hysteresis: 4, consecutive_hysteresis: true, min_loss_scale: 2}");
  EXPECT_EQ(errors_of(migration), Lines{});
  EXPECT_EQ(settings_of(migration, "loss_scale."),
            (Settings{{"loss_scale.initial", "4096"},
                      {"loss_scale.window", "500"},
                      {"loss_scale.first_window", "501"},
                      {"loss_scale.hysteresis", "4"},
                      {"loss_scale.consecutive_hysteresis", "true"},
                      {"loss_scale.min", "2"}}));
  EXPECT_EQ(settings_of(migration)["train.dtype"], "fp16");
}

TEST(MapPrecision, DefaultsOfTheLossScaleAreListed) {
  const Migration migration = with_adam("zero_optimization: {stage: 1}, fp16: {enabled: true}");
  EXPECT_EQ(settings_of(migration, "loss_scale."), (Settings{{"loss_scale.initial", "65536"},
                                                             {"loss_scale.window", "1000"},
                                                             {"loss_scale.first_window", "1001"},
                                                             {"loss_scale.hysteresis", "2"},
                                                             {"loss_scale.min", "1"}}));
  for (const char* path : {"fp16.initial_scale_power", "fp16.loss_scale_window", "fp16.hysteresis",
                           "fp16.min_loss_scale"}) {
    EXPECT_FALSE(key_of(migration, path).is_written) << path;
  }
}

// DeepSpeed's optimizer without ZeRO has no hysteresis.
TEST(MapPrecision, Stage0HasNoHysteresis) {
  const Migration migration =
      with_adam("fp16: {enabled: true, hysteresis: 4, consecutive_hysteresis: true}");
  EXPECT_EQ(settings_of(migration)["loss_scale.hysteresis"], "1");
  EXPECT_FALSE(settings_of(migration).contains("loss_scale.consecutive_hysteresis"));
  EXPECT_EQ(class_and_note(migration, "fp16.hysteresis"),
            "changed: loss_scale.hysteresis 1: DeepSpeed without ZeRO ignores hysteresis 4 and "
            "halves the scale at each overflow");
}

TEST(MapPrecision, StaticLossScale) {
  const Migration migration = with_adam(
      "zero_optimization: {stage: 1}, fp16: {enabled: true, loss_scale: 128, hysteresis: 3}");
  EXPECT_EQ(settings_of(migration, "loss_scale."), (Settings{{"loss_scale.static", "128"}}));
  EXPECT_FALSE(key_of(migration, "fp16.loss_scale").stops);
  EXPECT_EQ(class_and_note(migration, "fp16.hysteresis"),
            "not_needed: without effect: fp16.loss_scale is a static scale");
}

TEST(MapPrecision, ScaleOutOfRange) {
  EXPECT_EQ(errors_of(with_adam("zero_optimization: {stage: 1}, fp16: {enabled: true, "
                                "initial_scale_power: 200, hysteresis: 0}")),
            (Lines{"f:1:117: fp16.initial_scale_power: 2^200 is no fp32 number; write a power from "
                   "-127 to 127",
                   "f:1:143: fp16.hysteresis: Sluice has no such value: loss_scale.hysteresis: "
                   "'0' is out of range, expected a whole number from 1 to 2147483647"}));
}

TEST(MapPrecision, GradientsOf16BitModels) {
  const Migration migration = with_adam("zero_optimization: {stage: 2}, bf16: {enabled: true}");
  EXPECT_EQ(settings_of(migration)["train.dtype"], "bf16");
  EXPECT_EQ(class_and_note(migration, "data_types.grad_accum_dtype"),
            "changed: DeepSpeed accumulates gradients in bf16, Sluice accumulates them in fp32");
  EXPECT_EQ(class_and_note(migration, "communication_data_type"),
            "changed: DeepSpeed reduces gradients in bf16, Sluice reduces them in fp32; "
            "zero.reduce_dtype: bf16 sends them in bf16");
  EXPECT_FALSE(settings_of(migration).contains("zero.reduce_dtype"));
  EXPECT_EQ(class_and_note(migration, "bf16.check_grad_overflow"),
            "changed: DeepSpeed skips a step whose gradients are not finite; Sluice stops the run "
            "at that step");
  for (const char* path :
       {"data_types.grad_accum_dtype", "communication_data_type", "bf16.check_grad_overflow"}) {
    EXPECT_FALSE(key_of(migration, path).is_written) << path;
  }
  const Migration written = with_adam(
      "zero_optimization: {stage: 1}, bf16: {enabled: true}, "
      "data_types: {grad_accum_dtype: \"fp32\"}, communication_data_type: \"fp16\"");
  EXPECT_EQ(class_and_note(written, "data_types.grad_accum_dtype"),
            "not_needed: Sluice accumulates gradients in fp32, as DeepSpeed here");
  EXPECT_EQ(class_and_note(written, "communication_data_type"),
            "changed: DeepSpeed reduces gradients in fp16, Sluice reduces them in fp32");
  const Migration asked = with_adam(
      "zero_optimization: {stage: 2}, bf16: {enabled: true}, communication_data_type: \"BF16\"");
  EXPECT_EQ(settings_of(asked)["zero.reduce_dtype"], "bf16");
  EXPECT_TRUE(key_of(asked, "communication_data_type").is_written);
}

TEST(MapPrecision, Fp32SaysNothing) {
  const Migration migration = with_adam("steps_per_print: 1");
  for (const MigratedKey& key : migration.keys) {
    EXPECT_NE(key.path, "communication_data_type");
    EXPECT_NE(key.path, "data_types.grad_accum_dtype");
  }
  EXPECT_FALSE(settings_of(migration).contains("train.dtype"));
}

}  // namespace
}  // namespace sluice::migrate
