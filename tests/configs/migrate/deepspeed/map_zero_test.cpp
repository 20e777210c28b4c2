// ZeRO, offload, recomputation, tensor parallelism and output.
#include <gtest/gtest.h>

#include "tests/configs/migrate/deepspeed/migrated.hpp"

namespace sluice::migrate {
namespace {

using Lines = std::vector<std::string>;

Migration staged(int stage, const std::string& keys, DeepSpeedOptions options = {}) {
  return with_adam("zero_optimization: {stage: " + std::to_string(stage) + ", " + keys + "}",
                   std::move(options));
}

TEST(MapZero, StageByDefault) {
  const Migration migration = with_adam("steps_per_print: 1");
  EXPECT_EQ(settings_of(migration, "zero."), (Settings{{"zero.stage", "0"}}));
  EXPECT_FALSE(key_of(migration, "zero_optimization.stage").is_written);
  EXPECT_EQ(settings_of(with_adam("zero_optimization: true"), "zero."),
            (Settings{{"zero.stage", "1"}}));
}

TEST(MapZero, ElementsBecomeBytesAndUnits) {
  const Migration migration = staged(3,
                                     "reduce_bucket_size: 5e8, stage3_prefetch_bucket_size: 5e7, "
                                     "stage3_param_persistence_threshold: 1e5, sub_group_size: 1e9",
                                     {.hidden = 1000});
  EXPECT_EQ(settings_of(migration, "zero."), (Settings{{"zero.stage", "3"},
                                                       {"zero.bucket_bytes", "2000000000"},
                                                       {"zero.prefetch_units", "5"},
                                                       {"zero.persist_below", "100000"}}));
  EXPECT_EQ(origin_of(migration, "zero.bucket_bytes"),
            "zero_optimization.reduce_bucket_size 5e8 elements");
  EXPECT_EQ(class_and_note(migration, "zero_optimization.sub_group_size"),
            "not_needed: Sluice updates a shard at once where the optimizer is on the device");
  EXPECT_EQ(class_and_note(migration, "zero_optimization.stage3_param_persistence_threshold"),
            "changed: zero.persist_below 100000: DeepSpeed keeps each parameter of so few elements "
            "gathered, Sluice each whole unit");
}

TEST(MapZero, SubGroups) {
  const std::string offload = "offload_optimizer: {device: \"cpu\"}, ";
  const std::string key = "zero_optimization.sub_group_size";
  EXPECT_EQ(
      class_and_note(staged(3, offload + "sub_group_size: 0"), key),
      "changed: not carried over: DeepSpeed updates one parameter at a time, Sluice chunks of "
      "offload.chunk_bytes 16777216");
  EXPECT_EQ(class_and_note(staged(3, offload + "sub_group_size: 1e8"), key),
            "changed: not carried over: DeepSpeed updates 1e8 elements at a time, Sluice chunks of "
            "offload.chunk_bytes 16777216");
  EXPECT_EQ(class_and_note(staged(3, "sub_group_size: 1e8"), key),
            "not_needed: Sluice updates a shard at once where the optimizer is on the device");
}

TEST(MapOthers, DataEfficiencyStopsOnce) {
  const Migration migration = with_adam(
      "data_efficiency: {enabled: true, data_routing: {enabled: true, random_ltd: {enabled: "
      "true}}}");
  Lines stops;
  for (const MigratedKey& key : migration.keys) {
    if (key.stops) stops.push_back(key.path + ": " + key.note);
  }
  EXPECT_EQ(stops, (Lines{"data_efficiency.enabled: Sluice has no curriculum, no dynamic batches "
                          "and no random layer-token drop"}));
}

TEST(MapAutos, PathsAsTheFileWritesThem) {
  const Migration migration = staged(3, "stage3_prefetch_bucket_size: \"auto\"");
  EXPECT_EQ(missing_of(migration),
            Lines{"zero_optimization.stage3_prefetch_bucket_size: --hidden-size H, or --model"});
}

TEST(MapZero, PrefetchBounds) {
  const auto units = [](const std::string& size, DeepSpeedOptions options) {
    return settings_of(staged(3, "stage3_prefetch_bucket_size: " + size, std::move(options)),
                       "zero.prefetch");
  };
  EXPECT_EQ(units("0", {}), (Settings{{"zero.prefetch_units", "0"}}));
  EXPECT_EQ(units("5", {.hidden = 1000}), (Settings{{"zero.prefetch_units", "1"}}));
  EXPECT_EQ(units("5e9", {.hidden = 1000, .layers = 4}), (Settings{{"zero.prefetch_units", "5"}}));
  EXPECT_EQ(units("5e9", {.set = {"model.hidden=1000", "model.layers=6"}}),
            (Settings{{"zero.prefetch_units", "7"}}));
  EXPECT_EQ(units("5e7", {}), Settings{});
  EXPECT_EQ(class_and_note(staged(3, "stage3_prefetch_bucket_size: 5e7"),
                           "zero_optimization.stage3_prefetch_bucket_size"),
            "changed: zero.prefetch_units keeps Sluice's default 1: 5e7 elements are a number of "
            "units with --hidden-size only");
}

// An unwritten size moves no result: Sluice's own default holds.
TEST(MapZero, UnwrittenSizesStay) {
  EXPECT_EQ(settings_of(staged(3, ""), "zero."), (Settings{{"zero.stage", "3"}}));
}

TEST(MapOffload, TiersByStage) {
  const auto tiers = [](int stage, const std::string& keys) {
    return settings_of(staged(stage, keys), "offload.");
  };
  const std::string cpu = "offload_optimizer: {device: \"cpu\"}";
  const std::string nvme = "offload_optimizer: {device: \"nvme\", nvme_path: \"/a\"}";
  const std::string param = "offload_param: {device: \"cpu\"}";
  EXPECT_EQ(tiers(0, cpu), Settings{});
  EXPECT_EQ(tiers(1, cpu), (Settings{{"offload.optimizer", "host"}}));
  EXPECT_EQ(tiers(2, cpu),
            (Settings{{"offload.optimizer", "host"}, {"offload.gradients", "host"}}));
  EXPECT_EQ(tiers(2, nvme),
            (Settings{{"offload.optimizer", "host"}, {"offload.gradients", "host"}}));
  EXPECT_EQ(tiers(2, "cpu_offload: true"),
            (Settings{{"offload.optimizer", "host"}, {"offload.gradients", "host"}}));
  EXPECT_EQ(tiers(3, nvme), (Settings{{"offload.optimizer", "nvme"},
                                      {"offload.gradients", "nvme"},
                                      {"offload.nvme_path", "[\"/a\"]"},
                                      {"offload.block_bytes", "1048576"},
                                      {"offload.queue_depth", "8"}}));
  EXPECT_EQ(tiers(3, param), (Settings{{"offload.parameters", "host"},
                                       {"offload.optimizer", "host"},
                                       {"offload.gradients", "host"}}));
  EXPECT_EQ(tiers(2, param), Settings{});
}

TEST(MapOffload, WhatIsSaidOfTiers) {
  const Migration two = staged(2, "offload_optimizer: {device: \"nvme\", nvme_path: \"/a\"}");
  EXPECT_EQ(class_and_note(two, "zero_optimization.offload_optimizer.device"),
            "changed: offload.optimizer host: DeepSpeed reads nvme as cpu on stage 2; --set "
            "offload.optimizer=nvme moves the states to the drive");
  const Migration three = staged(3, "offload_param: {device: \"nvme\", nvme_path: \"/a\"}");
  EXPECT_EQ(class_and_note(three, "zero_optimization.offload_param.device"),
            "changed: offload.parameters nvme and offload.optimizer host: DeepSpeed keeps the "
            "optimizer on the device, Sluice updates parameters off the device there");
}

TEST(MapOffload, FoldersOnce) {
  const Migration migration = staged(3,
                                     "offload_optimizer: {device: \"nvme\", nvme_path: \"/a/\"}, "
                                     "offload_param: {device: \"nvme\", nvme_path: \"/a\"}");
  EXPECT_EQ(settings_of(migration)["offload.nvme_path"], "[\"/a\"]");
  const Migration two = staged(3,
                               "offload_optimizer: {device: \"nvme\", nvme_path: \"/a\"}, "
                               "offload_param: {device: \"nvme\", nvme_path: \"/b \\\"c\"}");
  EXPECT_EQ(settings_of(two)["offload.nvme_path"], "[\"/b \\\"c\", \"/a\"]");
}

TEST(MapOffload, Ratio) {
  const auto at = [](const std::string& more) {
    return staged(3, "offload_optimizer: {device: \"cpu\", ratio: 0.3}" + more);
  };
  const std::string path = "zero_optimization.offload_optimizer.ratio";
  EXPECT_EQ(settings_of(at(""), "offload."),
            (Settings{{"offload.optimizer", "host"}, {"offload.device_fraction", "0.7"}}));
  EXPECT_EQ(class_and_note(at(""), path),
            "changed: offload.device_fraction 0.7 = 1 - ratio 0.3; gradients stay on the device");
  const Migration conflict = at(", offload_param: {device: \"cpu\"}");
  EXPECT_EQ(settings_of(conflict)["offload.device_fraction"], "0");
  EXPECT_EQ(class_and_note(conflict, path),
            "changed: offload.device_fraction 0 instead of 1 - 0.3: with parameters off the device "
            "Sluice updates all of them off the device");
}

TEST(MapOffload, EarlyUpdatesOnBothTiers) {
  const std::string path = "zero_optimization.offload_optimizer.super_offload";
  const auto with = [](const std::string& offload, const std::string& more) {
    return with_adam("zero_optimization: {stage: 3, offload_optimizer: {" + offload +
                     "super_offload: true}" + more);
  };
  const std::string cpu = "device: \"cpu\", ";
  EXPECT_EQ(settings_of(with(cpu, "}"))["offload.speculate"], "auto");
  const std::string params = ", offload_param: {device: \"cpu\"}}";
  EXPECT_EQ(settings_of(with(cpu, params + ", bf16: {enabled: true}"))["offload.speculate"],
            "auto");
  const Migration fp32 = with(cpu, params);
  EXPECT_EQ(settings_of(fp32).count("offload.speculate"), 0U);
  EXPECT_EQ(class_and_note(fp32, path),
            "not_needed: fp32 parameters on the host are master weights that the step reads");
}

TEST(MapOffload, TransfersInRange) {
  const std::string nvme =
      "zero_optimization: {stage: 3, offload_optimizer: {device: \"nvme\", nvme_path: \"/a\", "
      "super_offload: true}}, ";
  const Migration migration = with_adam(nvme + "aio: {block_size: 1000000, queue_depth: 10000}");
  EXPECT_EQ(settings_of(migration)["offload.block_bytes"], "917504");
  EXPECT_EQ(settings_of(migration)["offload.queue_depth"], "4096");
  EXPECT_EQ(settings_of(migration)["offload.speculate"], "auto");
  EXPECT_EQ(class_and_note(migration, "aio.block_size"),
            "changed: offload.block_bytes 917504 instead of 1000000: Sluice takes 4 KiB to 256 "
            "MiB, in whole 4 KiB, above 128 KiB in whole 128 KiB");
  EXPECT_EQ(class_and_note(migration, "aio.queue_depth"),
            "changed: offload.queue_depth: offload.queue_depth takes 1 to 4096, so 4096 instead of "
            "10000");
  const Migration host = with_adam("aio: {block_size: 4096}");
  EXPECT_EQ(class_and_note(host, "aio.block_size"),
            "not_needed: without effect: nothing lives on NVMe");
}

TEST(MapOthers, Activations) {
  const Migration migration = with_adam("activation_checkpointing: {cpu_checkpointing: true}");
  EXPECT_EQ(settings_of(migration)["recompute.mode"], "full");
  EXPECT_EQ(settings_of(migration)["offload.activations"], "host");
  const Migration section = with_adam("activation_checkpointing: {partition_activations: true}");
  EXPECT_FALSE(settings_of(section).contains("recompute.mode"));
  EXPECT_EQ(section.notes.back(),
            "activation_checkpointing turns no recomputation on, the model's code does: give --set "
            "recompute.mode=full if the code calls DeepSpeed's checkpoint function");
  EXPECT_EQ(
      settings_of(with_adam("pipeline: {activation_checkpoint_interval: 1}"))["recompute.mode"],
      "full");
}

TEST(MapOthers, TensorboardAndTensorParallel) {
  const Migration migration = with_adam(
      "tensorboard: {enabled: true, output_path: \"x\"}, tensor_parallel: {autotp_size: 4}");
  EXPECT_EQ(settings_of(migration)["output.tensorboard"], "true");
  EXPECT_EQ(settings_of(migration)["parallel.tensor"], "4");
  EXPECT_EQ(key_of(migration, "tensorboard.output_path").kind, KeyClass::kChanged);
}

TEST(MapOthers, MistakesStopTheMapping) {
  const Migration migration = with_adam("zero_optimization: {stage: 7}, gradient_clipping: \"x\"");
  EXPECT_EQ(errors_of(migration).size(), 2U);
  EXPECT_EQ(migration.lines.size(), 0U);
  EXPECT_EQ(migration.keys.size(), 4U);
}

}  // namespace
}  // namespace sluice::migrate
