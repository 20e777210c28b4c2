// Findings, effective values, batch sizes and "auto" of configurations that DeepSpeed takes.
#include "configs/migrate/deepspeed/deepspeed_config.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"

namespace sluice::migrate {
namespace {

DeepSpeedConfig parse(const std::string& text, const ParseOptions& options = {}) {
  const HjsonDocument document = read_hjson(text);
  EXPECT_TRUE(document.problems.empty()) << text;
  return parse_deepspeed(document.root, options);
}

// "path class" of every finding, with a '*' behind a default.
std::vector<std::string> classes(const DeepSpeedConfig& config) {
  std::vector<std::string> lines;
  for (const Finding& finding : config.findings) {
    lines.push_back(finding.path + " " + std::string(class_name(finding.kind)) +
                    (finding.is_default ? "*" : ""));
  }
  return lines;
}

const Finding& finding_of(const DeepSpeedConfig& config, std::string_view path) {
  for (const Finding& finding : config.findings) {
    if (finding.path == path) return finding;
  }
  throw Error("no finding of " + std::string(path));
}

using Lines = std::vector<std::string>;

TEST(DeepSpeedConfig, EveryKeyHasOneFinding) {
  const DeepSpeedConfig config = parse(
      "{\n"
      "  train_batch_size: 8, grandient_accumulation_steps: 1, my_note: {a: 1, b: 2},\n"
      "  optimizer: {type: \"AdamW\", params: {lr: 1e-3, weight_decay: 0.1}},\n"
      "  zero_optimization: {stage: 3, zero_hpz_partition_size: 1, zero_quantized_weights: true,\n"
      "    offload_optimizer: {device: \"cpu\", ratio: 0.5}, stage3_max_live_parameters: 1e9},\n"
      "  disable_allgather: true, gradient_clipping: 1.0, bf16: {}\n"
      "}");
  EXPECT_EQ(config.error_text("f"), "");
  EXPECT_EQ(
      classes(config),
      (Lines{"train_batch_size mapped", "grandient_accumulation_steps ignored_upstream",
             "my_note ignored_upstream", "optimizer.type mapped", "optimizer.params.lr mapped*",
             "optimizer.params.weight_decay changed", "zero_optimization.stage mapped",
             "zero_optimization.zero_hpz_partition_size refused_unless_default*",
             "zero_optimization.zero_quantized_weights refused_unless_default",
             "zero_optimization.offload_optimizer.device mapped",
             "zero_optimization.offload_optimizer.ratio changed",
             "zero_optimization.stage3_max_live_parameters not_needed*",
             "disable_allgather ignored_upstream", "gradient_clipping mapped*", "bf16 mapped*"}));
  EXPECT_EQ(config.findings[1].note,
            "DeepSpeed has no such key and says nothing; did you mean "
            "'gradient_accumulation_steps'?");
  EXPECT_EQ(config.findings[2].value, "{\"a\": 1, \"b\": 2}");
  EXPECT_EQ(config.findings[1].place.line, 2);
  EXPECT_EQ(config.findings[1].place.column, 24);
}

TEST(DeepSpeedConfig, DefaultsAreEffective) {
  const DeepSpeedConfig config = parse("train_batch_size: 8");
  EXPECT_EQ(config.number("gradient_clipping"), 1.0);
  EXPECT_FALSE(config.is_written("gradient_clipping"));
  EXPECT_TRUE(config.is_written("train_batch_size"));
  EXPECT_EQ(config.count("zero_optimization.reduce_bucket_size"), 500'000'000);
  EXPECT_EQ(config.count("fp16.initial_scale_power"), 16);
  EXPECT_TRUE(config.flag("bf16.check_grad_overflow"));
  EXPECT_TRUE(config.is_null("data_types.grad_accum_dtype"));
  EXPECT_EQ(config.count("aio.block_size"), 1048576);
  EXPECT_TRUE(config.is_null("optimizer.type"));
  // Sections and parameters that the configuration does not have.
  EXPECT_FALSE(config.has("zero_optimization.offload_param.device"));
  EXPECT_FALSE(config.has("optimizer.params.lr"));
  EXPECT_FALSE(config.has("scheduler.params.warmup_type"));
  EXPECT_THROW((void)config.flag("gradient_clipping"), Error);
  EXPECT_THROW((void)config.count("wibble"), Error);
}

TEST(DeepSpeedConfig, DefaultsOfParametersFollowTheType) {
  const DeepSpeedConfig config = parse(
      "{train_batch_size: 8, optimizer: {type: \"adam\", params: {lr: 0.1}},\n"
      " scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: 10}}}");
  EXPECT_EQ(config.error_text("f"), "");
  EXPECT_EQ(config.numbers("optimizer.params.betas"), (std::vector<double>{0.9, 0.999}));
  EXPECT_TRUE(config.flag("optimizer.params.adam_w_mode"));
  EXPECT_EQ(config.number("scheduler.params.warmup_max_lr"), 0.001);
  EXPECT_EQ(config.text("scheduler.params.warmup_type"), "log");
  EXPECT_EQ(config.count("scheduler.params.warmup_num_steps"), 1000);
}

TEST(DeepSpeedConfig, DefaultsFollowTheVersion) {
  const DeepSpeedConfig old = parse("train_batch_size: 8", {.version = {0, 15, 1}});
  EXPECT_EQ(old.number("gradient_clipping"), 0.0);
  EXPECT_EQ(old.count("steps_per_print"), 10);
  EXPECT_TRUE(old.flag("bf16.immediate_grad_update"));
  EXPECT_FALSE(old.has("bf16.bf16_optimizer_states"));
}

TEST(DeepSpeedConfig, KeysFollowTheVersion) {
  const std::string text =
      "{train_batch_size: 8, amp: {enabled: false}, elasticity: {enabled: true}, aio: "
      "{thread_count: 4}, managed_gradient_accumulation: true}";
  const DeepSpeedConfig old = parse(text, {.version = {0, 16, 0}});
  EXPECT_EQ(old.error_text("f"), "");
  EXPECT_EQ(classes(old), (Lines{"train_batch_size mapped", "amp removed_upstream*",
                                 "elasticity removed_upstream", "aio.thread_count not_needed",
                                 "managed_gradient_accumulation ignored_upstream"}));
  EXPECT_EQ(finding_of(old, "managed_gradient_accumulation").note,
            "DeepSpeed has this key since 0.19.4; 0.16.0 ignores the key and says nothing");
  const DeepSpeedConfig young = parse("{train_batch_size: 8, aio: {thread_count: 4}}");
  EXPECT_EQ(finding_of(young, "aio.thread_count").note,
            "DeepSpeed has removed this key in 0.16.4; 0.19.8 ignores the key and says nothing");
  const DeepSpeedConfig early =
      parse("{train_batch_size: 8, zero_optimization: {enable_sanity_checks: true}}",
            {.version = {0, 16, 0}});
  EXPECT_EQ(early.error_text("f"),
            "f:1:43: zero_optimization.enable_sanity_checks: DeepSpeed has this key since 0.17.6, "
            "the file is read as 0.16.0; name the version of DeepSpeed with --from-version");
}

// fp16 and bf16 have been strict since 0.17.1.
TEST(DeepSpeedConfig, StrictnessFollowsTheVersion) {
  const std::string text = "{train_batch_size: 8, bf16: {enabled: true, loss_scale: 0}}";
  const DeepSpeedConfig old = parse(text, {.version = {0, 17, 0}});
  EXPECT_EQ(old.error_text("f"), "");
  EXPECT_EQ(finding_of(old, "bf16.loss_scale").kind, KeyClass::kIgnored);
  EXPECT_EQ(
      parse(text).error_text("f"),
      "f:1:45: bf16.loss_scale: no key of bf16: DeepSpeed raises an error since 0.17.1, older "
      "versions ignore the key; remove the key, or name the version with --from-version");
}

TEST(DeepSpeedConfig, NearNamesAreNamesOfTheSameThing) {
  const DeepSpeedConfig config = parse(
      "{train_batch_size: 8, micro_batch_size_per_gpu: 1, pipe-parallel-size: 1, comment: 1,\n"
      " _comment: 1, gradient_cliping: 1}");
  const std::string silence = "DeepSpeed has no such key and says nothing";
  EXPECT_EQ(finding_of(config, "micro_batch_size_per_gpu").note,
            silence + "; did you mean 'train_micro_batch_size_per_gpu'?");
  EXPECT_EQ(finding_of(config, "gradient_cliping").note,
            silence + "; did you mean 'gradient_clipping'?");
  for (const char* const key : {"pipe-parallel-size", "comment", "_comment"}) {
    EXPECT_EQ(finding_of(config, key).note, silence) << key;
  }
}

TEST(DeepSpeedConfig, StrictSectionsConvertAsPydanticDoes) {
  const DeepSpeedConfig config = parse(
      "{train_batch_size: 8, fp16: {enabled: \"true\", hysteresis: \"3\", loss_scale: \"0\"},\n"
      " zero_optimization: {stage: \"2\", reduce_bucket_size: 2e8, overlap_comm: 1,\n"
      " round_robin_gradients: \"No\", leaf_module: {names: \"x\"}}}");
  EXPECT_EQ(config.error_text("f"), "");
  EXPECT_TRUE(config.flag("fp16.enabled"));
  EXPECT_EQ(config.count("fp16.hysteresis"), 3);
  EXPECT_EQ(config.count("zero_optimization.stage"), 2);
  EXPECT_EQ(config.count("zero_optimization.reduce_bucket_size"), 200'000'000);
  EXPECT_TRUE(config.flag("zero_optimization.overlap_comm"));
  EXPECT_FALSE(config.flag("zero_optimization.round_robin_gradients"));
  EXPECT_EQ(config.value("zero_optimization.leaf_module.names").items.size(), 1U);
}

TEST(DeepSpeedConfig, OldForms) {
  const DeepSpeedConfig on = parse(
      "{train_batch_size: 8, zero_optimization: true, "
      "allgather_size: 1e6}");
  EXPECT_EQ(on.count("zero_optimization.stage"), 1);
  EXPECT_EQ(on.count("zero_optimization.allgather_bucket_size"), 1'000'000);
  const DeepSpeedConfig off = parse(
      "{train_batch_size: 8, zero_optimization: false, "
      "allgather_size: 1e6}");
  EXPECT_EQ(off.count("zero_optimization.stage"), 0);
  EXPECT_EQ(finding_of(off, "allgather_size").kind, KeyClass::kIgnored);
  const DeepSpeedConfig offload = parse(
      "{train_batch_size: 8, zero_optimization: {stage: 3, cpu_offload: true, "
      "cpu_offload_param: true, stage3_gather_fp16_weights_on_model_save: true}}");
  EXPECT_EQ(offload.error_text("f"), "");
  EXPECT_EQ(offload.text("zero_optimization.offload_optimizer.device"), "cpu");
  EXPECT_EQ(offload.number("zero_optimization.offload_optimizer.ratio"), 1.0);
  EXPECT_EQ(offload.text("zero_optimization.offload_param.device"), "cpu");
  EXPECT_TRUE(offload.flag("zero_optimization.gather_16bit_weights_on_model_save"));
  const DeepSpeedConfig both = parse(
      "{train_batch_size: 8, bf16: {enabled: true}, "
      "bfloat16: {enabled: false}}");
  EXPECT_EQ(both.error_text("f"), "");
  EXPECT_TRUE(both.flag("bf16.enabled"));
  EXPECT_EQ(finding_of(both, "bfloat16").kind, KeyClass::kIgnored);
}

struct Sizes {
  std::string text;
  int world;
  std::int64_t global, micro, accumulation;
};

TEST(DeepSpeedConfig, BatchSizesByTheProductRule) {
  const std::vector<Sizes> cases{
      {"{train_batch_size: 16, train_micro_batch_size_per_gpu: 2}", 4, 16, 2, 2},
      {"{train_batch_size: 16, gradient_accumulation_steps: 2}", 4, 16, 2, 2},
      {"{train_micro_batch_size_per_gpu: 2, gradient_accumulation_steps: 2}", 4, 16, 2, 2},
      {"{train_batch_size: 16}", 4, 16, 4, 1},
      {"{train_micro_batch_size_per_gpu: 2}", 4, 8, 2, 1},
      {"{train_batch_size: 16, train_micro_batch_size_per_gpu: 2, "
       "gradient_accumulation_steps: 2}",
       4, 16, 2, 2},
      {"{train_micro_batch_size_per_gpu: 2, sequence_parallel_size: 2}", 4, 4, 2, 1},
  };
  for (const Sizes& sizes : cases) {
    SCOPED_TRACE(sizes.text);
    const DeepSpeedConfig config = parse(sizes.text, {.world = sizes.world});
    EXPECT_EQ(config.error_text("f"), "");
    EXPECT_EQ(config.batch.global, sizes.global);
    EXPECT_EQ(config.batch.micro, sizes.micro);
    EXPECT_EQ(config.batch.accumulation, sizes.accumulation);
  }
}

// DeepSpeed's rule counts tensor-parallel ranks; only data-parallel ranks have samples of their
// own.
TEST(DeepSpeedConfig, TensorParallelRanksAreCountedApart) {
  const DeepSpeedConfig config =
      parse("{train_micro_batch_size_per_gpu: 2, tensor_parallel: {autotp_size: 2}}", {.world = 8});
  EXPECT_EQ(config.batch.ranks, 8);
  EXPECT_EQ(config.batch.data_parallel, 4);
  EXPECT_EQ(config.batch.global, 16);
}

TEST(DeepSpeedConfig, WithoutAWorldNothingIsMultiplied) {
  const DeepSpeedConfig config = parse("{train_batch_size: 7, gradient_accumulation_steps: 2}");
  EXPECT_EQ(config.error_text("f"), "");
  EXPECT_EQ(config.batch.global, 7);
  EXPECT_EQ(config.batch.micro, std::nullopt);
}

const char* const kAuto =
    "{train_batch_size: \"auto\", train_micro_batch_size_per_gpu: \"auto\",\n"
    " fp16: {enabled: \"auto\", loss_scale: \"auto\", hysteresis: \"auto\"},\n"
    " optimizer: {type: \"AdamW\", params: {lr: \"auto\"}},\n"
    " zero_optimization: {stage: 3, reduce_bucket_size: \"auto\", sub_group_size: \"auto\",\n"
    "  offload_param: \"auto\"}, tensorboard: \"auto\"}";

TEST(DeepSpeedConfig, AutoIsListedOrTheDefault) {
  const DeepSpeedConfig config = parse(kAuto, {.world = 4});
  EXPECT_EQ(config.error_text("f"), "");
  Lines paths;
  for (const AutoValue& value : config.autos) {
    EXPECT_FALSE(value.is_filled);
    paths.push_back(value.path);
  }
  EXPECT_EQ(paths, (Lines{"train_batch_size", "train_micro_batch_size_per_gpu", "fp16.enabled",
                          "optimizer.params.lr", "zero_optimization.reduce_bucket_size"}));
  EXPECT_EQ(finding_of(config, "zero_optimization.sub_group_size").note,
            "DeepSpeed reads \"auto\" as the default 1e9");
  EXPECT_TRUE(finding_of(config, "zero_optimization.sub_group_size").is_default);
  EXPECT_TRUE(finding_of(config, "zero_optimization.offload_param").is_default);
  EXPECT_FALSE(config.flag("fp16.enabled"));
}

TEST(DeepSpeedConfig, AutoIsFilled) {
  const ParseOptions options{.world = 4,
                             .autos = {{"train_batch_size", "16"},
                                       {"train_micro_batch_size_per_gpu", "2"},
                                       {"fp16.enabled", "true"},
                                       {"optimizer.params.lr", "5e-5"},
                                       {"zero_optimization.reduce_bucket_size", "1048576"}}};
  const DeepSpeedConfig config = parse(kAuto, options);
  EXPECT_EQ(config.error_text("f"), "");
  EXPECT_TRUE(config.flag("fp16.enabled"));
  EXPECT_EQ(config.number("optimizer.params.lr"), 5e-5);
  EXPECT_EQ(config.batch.accumulation, 2);
  for (const AutoValue& value : config.autos) EXPECT_TRUE(value.is_filled) << value.path;
  const DeepSpeedConfig wrong = parse(kAuto, {.autos = {{"optimizer.params.lr", "fast"}}});
  EXPECT_EQ(wrong.error_text("f"),
            "f:3:38: optimizer.params.lr: \"auto\" is filled, but found \"fast\"; write a number "
            ">= 0");
}

TEST(DeepSpeedConfig, KeysWithoutEffectStopNothing) {
  const DeepSpeedConfig config = parse(
      "{train_batch_size: 8, fp16: {enabled: false, loss_scale: 128},\n"
      " zero_optimization: {stage: 2, offload_param: {device: \"nvme\"}, sub_group_size: 5,\n"
      " offload_optimizer: {device: \"nvme\"}}, expert_parallel: {autoep_size: 4}}");
  EXPECT_EQ(config.error_text("f"), "");
  EXPECT_EQ(finding_of(config, "fp16.loss_scale").kind, KeyClass::kNotNeeded);
  EXPECT_EQ(finding_of(config, "fp16.loss_scale").note, "without effect: fp16.enabled is false");
  EXPECT_EQ(finding_of(config, "expert_parallel.autoep_size").kind, KeyClass::kNotNeeded);
  EXPECT_EQ(finding_of(config, "zero_optimization.offload_param.device").note,
            "DeepSpeed uses this key on ZeRO stage 3 only, the stage is 2");
  EXPECT_EQ(finding_of(config, "zero_optimization.sub_group_size").kind, KeyClass::kIgnored);
  EXPECT_EQ(finding_of(config, "zero_optimization.offload_optimizer.device").note,
            "offload.optimizer: host, as DeepSpeed reads nvme as cpu on stage 2");
}

TEST(DeepSpeedConfig, TypesThatSluiceLacksAreRefused) {
  const DeepSpeedConfig config = parse(
      "{train_batch_size: 8, optimizer: {type: \"RAdam\", params: {lr: 1, decoupled: true}},\n"
      " scheduler: {type: \"OneCycle\", params: {cycle_min_lr: 0, cycle_max_lr: 1}}}");
  EXPECT_EQ(config.error_text("f"), "");
  EXPECT_EQ(finding_of(config, "optimizer.type").kind, KeyClass::kRefused);
  EXPECT_EQ(finding_of(config, "optimizer.type").note, "Sluice has no \"RAdam\"");
  EXPECT_EQ(finding_of(config, "optimizer.params.decoupled").kind, KeyClass::kRefused);
  EXPECT_EQ(finding_of(config, "scheduler.type").kind, KeyClass::kRefused);
}

TEST(DeepSpeedConfig, MistakesBeyondAHundredAreCounted) {
  std::string text = "{train_batch_size: 8, fp16: {";
  for (int i = 0; i < 105; ++i) text += "k" + std::to_string(i) + ": 1,";
  const DeepSpeedConfig config = parse(text + "}}");
  EXPECT_EQ(config.mistakes.size(), 105U);
  EXPECT_NE(config.error_text("f").find("\nand 5 more mistakes"), std::string::npos);
}

}  // namespace
}  // namespace sluice::migrate
