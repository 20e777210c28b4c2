// Batch sizes, steps, clipping, values for "auto", and what a file leaves open.
#include <gtest/gtest.h>

#include "tests/configs/migrate/deepspeed/migrated.hpp"

namespace sluice::migrate {
namespace {

using Lines = std::vector<std::string>;

const std::string kAdam = ", optimizer: {type: \"Adam\", params: {lr: 1e-3}}";

struct MappedSizes {
  const char* text;
  int world;
  const char* micro;
  const char* global;
};

TEST(MapBatch, ProductRule) {
  for (const MappedSizes& sizes : {
           MappedSizes{"train_batch_size: 32, gradient_accumulation_steps: 2", 4, "4", "32"},
           MappedSizes{"train_batch_size: 32", 8, "4", "32"},
           MappedSizes{"train_micro_batch_size_per_gpu: 3", 4, "3", "12"},
           MappedSizes{"train_micro_batch_size_per_gpu: 3, gradient_accumulation_steps: 5", 2, "3",
                       "30"},
           // Without a world.
           MappedSizes{"train_micro_batch_size_per_gpu: 3", 0, "3", "auto"},
           MappedSizes{"train_micro_batch_size_per_gpu: 3, train_batch_size: 12", 0, "3", "12"},
           // The three sizes decide the world.
           MappedSizes{"train_micro_batch_size_per_gpu: 3, train_batch_size: 24,"
                       "gradient_accumulation_steps: 2",
                       0, "3", "24"},
       }) {
    SCOPED_TRACE(sizes.text);
    const Migration migration =
        migrated("{" + std::string(sizes.text) + kAdam + "}", {.parse = {.world = sizes.world}});
    EXPECT_EQ(errors_of(migration), Lines{});
    EXPECT_EQ(missing_of(migration), Lines{});
    EXPECT_EQ(settings_of(migration)["train.micro_batch"], sizes.micro);
    EXPECT_EQ(settings_of(migration)["train.global_batch"], sizes.global);
  }
}

TEST(MapBatch, OneHasNoPlural) {
  const auto origin = [](const std::string& sizes) {
    const Migration migration = migrated("{" + sizes + kAdam + "}", {.parse = {.world = 1}});
    for (const ConfigLine& line : migration.lines) {
      if (line.setting.key == "train.global_batch") return line.origin;
    }
    return std::string();
  };
  EXPECT_EQ(origin("train_micro_batch_size_per_gpu: 1, gradient_accumulation_steps: 1"),
            "1 sample x 1 micro-batch x 1 data-parallel rank");
  EXPECT_EQ(origin("train_micro_batch_size_per_gpu: 2, gradient_accumulation_steps: 3"),
            "2 samples x 3 micro-batches x 1 data-parallel rank");
}

TEST(MapBatch, ThreeSizesImplyTheWorld) {
  const Migration migration = migrated(
      "{train_micro_batch_size_per_gpu: 3, train_batch_size: 24, gradient_accumulation_steps: 2" +
      kAdam + "}");
  EXPECT_EQ(migration.world, 4);
  EXPECT_EQ(migration.notes[0], "the three batch sizes fit 4 ranks, the result is for --world 4");
  const Migration wrong = migrated(
      "{train_micro_batch_size_per_gpu: 3, train_batch_size: 25, gradient_accumulation_steps: 2" +
      kAdam + "}");
  EXPECT_EQ(errors_of(wrong),
            Lines{"f:1:37: train_batch_size: 25 is no multiple of micro batch 3 x accumulation 2; "
                  "change one of the sizes"});
}

TEST(MapBatch, AsksForTheWorld) {
  for (const char* text :
       {"train_batch_size: 8", "train_batch_size: 8, gradient_accumulation_steps: 2",
        "train_micro_batch_size_per_gpu: 3, gradient_accumulation_steps: 2"}) {
    const Migration migration = migrated("{" + std::string(text) + kAdam + "}");
    ASSERT_EQ(migration.missing.size(), 1U) << text;
    EXPECT_EQ(migration.missing[0].give,
              "--world N, the ranks of the job: the batch sizes depend on them");
  }
}

TEST(MapBatch, TensorParallelRanksAreNoDataRanks) {
  const std::string text =
      "{train_micro_batch_size_per_gpu: 2, train_batch_size: 16, tensor_parallel: {autotp_size: "
      "2}" +
      kAdam + "}";
  for (const int world : {8, 0}) {
    const Migration migration = migrated(text, {.parse = {.world = world}});
    EXPECT_EQ(settings_of(migration)["train.global_batch"], "8");
    EXPECT_EQ(settings_of(migration)["parallel.tensor"], "2");
    EXPECT_EQ(class_and_note(migration, "train_batch_size"),
              "changed: DeepSpeed counts the 2 tensor-parallel ranks as data-parallel ranks: its "
              "train_batch_size 16 is train.global_batch 8");
  }
  const Migration any = migrated(
      "{train_micro_batch_size_per_gpu: 2, tensor_parallel: {autotp_size: 2}" + kAdam + "}");
  EXPECT_EQ(settings_of(any)["train.global_batch"], "auto");
  EXPECT_EQ(class_and_note(any, "train_micro_batch_size_per_gpu"),
            "changed: DeepSpeed counts the 2 tensor-parallel ranks as data-parallel ranks: its "
            "train_batch_size is 2 x train.global_batch");
  const Migration odd = migrated(
      "{train_micro_batch_size_per_gpu: 2, train_batch_size: 15, tensor_parallel: {autotp_size: "
      "2}" +
      kAdam + "}");
  EXPECT_EQ(errors_of(odd), Lines{"f:1:37: train_batch_size: 15 is no multiple of the 2 "
                                  "tensor-parallel ranks; change one of the two"});
}

TEST(MapBatch, ClippingByVersion) {
  const std::string text = "{train_micro_batch_size_per_gpu: 2" + kAdam + "}";
  const Migration now = migrated(text);
  EXPECT_EQ(settings_of(now)["train.clip"], "1");
  EXPECT_FALSE(key_of(now, "gradient_clipping").is_written);
  EXPECT_EQ(origin_of(now, "train.clip"), "gradient_clipping 1.0, the default of DeepSpeed 0.19.8");
  const Migration before = migrated(text, {.parse = {.version = {0, 19, 2}}});
  EXPECT_EQ(settings_of(before)["train.clip"], "0");
}

TEST(MapBatch, StepsOfTheSchedule) {
  const std::string text = "{train_micro_batch_size_per_gpu: 2, steps_per_print: 7" + kAdam +
                           ", scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: 500, "
                           "warmup_max_lr: 1e-3}}}";
  const Migration migration = migrated(text);
  EXPECT_EQ(settings_of(migration)["train.steps"], "500");
  EXPECT_EQ(settings_of(migration)["train.log_every"], "7");
  EXPECT_EQ(migration.notes, Lines{});
  EXPECT_FALSE(settings_of(migrated(text, {.set = {"train.steps=9"}})).contains("train.steps"));
  EXPECT_EQ(migrated("{train_micro_batch_size_per_gpu: 2" + kAdam + "}").notes,
            Lines{"the file has no number of steps; train.steps has Sluice's default 1000: give "
                  "--set train.steps=N"});
}

const char* const kEveryAuto =
    "{train_batch_size: \"auto\", train_micro_batch_size_per_gpu: \"auto\",\n"
    " gradient_accumulation_steps: \"auto\", gradient_clipping: \"auto\",\n"
    " bf16: {enabled: \"auto\"}, fp16: {enabled: \"auto\"},\n"
    " optimizer: {type: \"AdamW\", params: {lr: \"auto\", betas: \"auto\", eps: \"auto\", "
    "weight_decay: \"auto\"}},\n"
    " scheduler: {type: \"WarmupDecayLR\", params: {warmup_min_lr: \"auto\", warmup_max_lr: "
    "\"auto\",\n"
    "  warmup_num_steps: \"auto\", total_num_steps: \"auto\"}},\n"
    " zero_optimization: {stage: 3, reduce_bucket_size: \"auto\", stage3_prefetch_bucket_size: "
    "\"auto\",\n"
    "  stage3_param_persistence_threshold: \"auto\"}}";

TEST(MapAutos, AllOpenValuesAtOnce) {
  const Migration migration = migrated(kEveryAuto);
  EXPECT_EQ(errors_of(migration), Lines{});
  const std::string by_trainer = " with --trainer";
  EXPECT_EQ(
      missing_of(migration),
      (Lines{
          "train_batch_size: --set train.global_batch=N, or per_device_train_batch_size" +
              by_trainer,
          "train_micro_batch_size_per_gpu: --set train.micro_batch=N, or "
          "per_device_train_batch_size" +
              by_trainer,
          "gradient_accumulation_steps: --set train.global_batch=N, or "
          "gradient_accumulation_steps" +
              by_trainer,
          "gradient_clipping: --set train.clip=NORM, or max_grad_norm" + by_trainer,
          "bf16.enabled: --set train.dtype=bf16, or bf16" + by_trainer,
          "fp16.enabled: --set train.dtype=fp16, or fp16" + by_trainer,
          "optimizer.params.lr: --set optimizer.lr=LR, or learning_rate" + by_trainer,
          "optimizer.params.betas: --set optimizer.betas=[B1,B2], or adam_beta1 and adam_beta2" +
              by_trainer,
          "optimizer.params.eps: --set optimizer.eps=EPS, or adam_epsilon" + by_trainer,
          "optimizer.params.weight_decay: --set optimizer.weight_decay=DECAY, or weight_decay" +
              by_trainer,
          "scheduler.params.warmup_max_lr: --set optimizer.lr=LR, or learning_rate" + by_trainer,
          "scheduler.params.warmup_num_steps: --set schedule.warmup_steps=N, or warmup_steps" +
              by_trainer,
          "scheduler.params.total_num_steps: --set schedule.decay_steps=N, or max_steps" +
              by_trainer,
          "zero_optimization.reduce_bucket_size: --hidden-size H, or --model",
          "zero_optimization.stage3_prefetch_bucket_size: --hidden-size H, or --model",
          "zero_optimization.stage3_param_persistence_threshold: --hidden-size H, or --model",
      }));
}

const Lines kSettings{
    "train.global_batch=64", "train.micro_batch=2",         "train.clip=0.5",
    "train.dtype=bf16",      "optimizer.lr=2e-4",           "optimizer.betas=[0.8, 0.9]",
    "optimizer.eps=1e-6",    "optimizer.weight_decay=0.02", "schedule.warmup_steps=10%",
    "train.steps=400"};

TEST(MapAutos, OpenValuesSetNothing) {
  const Settings settings = settings_of(migrated(kEveryAuto));
  for (const char* const key : {"train.dtype", "train.clip", "optimizer.lr", "optimizer.eps",
                                "schedule.warmup_steps", "schedule.decay_steps"}) {
    EXPECT_FALSE(settings.contains(key)) << key;
  }
}

TEST(MapAutos, OpenValuesKeepTheirNotes) {
  const Migration migration = migrated(kEveryAuto);
  EXPECT_EQ(class_and_note(migration, "optimizer.params.weight_decay"),
            "changed: optimizer.weight_decay: DeepSpeed decays all parameters, Sluice by default "
            "matrices; Hugging Face's Trainer fills \"auto\"");
  EXPECT_EQ(class_and_note(migration, "zero_optimization.reduce_bucket_size"),
            "changed: zero.bucket_bytes: DeepSpeed counts elements, Sluice counts bytes; Hugging "
            "Face's Trainer fills \"auto\"");
  for (const MigratedKey& key : migration.keys) {
    // The Trainer always fills warmup_min_lr with 0.
    if (key.path == "scheduler.params.warmup_min_lr") continue;
    EXPECT_TRUE(key.value != "\"auto\"" || key.to.empty()) << key.path;
  }
}

TEST(MapAutos, SettingsFillThem) {
  const Migration migration =
      migrated(kEveryAuto, {.parse = {.world = 4}, .hidden = 1000, .set = kSettings});
  EXPECT_EQ(errors_of(migration), Lines{});
  EXPECT_EQ(missing_of(migration), Lines{});
  const Settings expected{{"train.micro_batch", "2"},
                          {"train.global_batch", "64"},
                          {"train.clip", "0.5"},
                          {"train.dtype", "bf16"},
                          {"zero.stage", "3"},
                          {"zero.bucket_bytes", "4000000"},
                          {"zero.prefetch_units", "1"},
                          {"zero.persist_below", "10000"},
                          {"optimizer.type", "adamw"},
                          {"optimizer.lr", "2e-04"},
                          {"optimizer.betas", "[0.8, 0.9]"},
                          {"optimizer.eps", "1e-06"},
                          {"optimizer.weight_decay", "0.02"},
                          {"optimizer.decay", "all"},
                          {"schedule.type", "linear"},
                          {"schedule.counting", "deepspeed"},
                          {"schedule.warmup", "log"},
                          {"schedule.warmup_steps", "40"},
                          {"schedule.warmup_min_lr", "0"},
                          {"schedule.min_lr", "0"},
                          {"schedule.decay_steps", "400"}};
  EXPECT_EQ(settings_of(migration), expected);
  EXPECT_EQ(migration.effective.at("gradient_accumulation_steps"), "8");
  EXPECT_EQ(class_and_note(migration, "gradient_clipping"),
            "mapped: train.clip: the same norm and factor; 0 is off; \"auto\" is 0.5");
  EXPECT_EQ(key_of(migration, "gradient_accumulation_steps").note,
            "train.global_batch = micro batch x accumulation steps x data-parallel ranks; \"auto\" "
            "is what the other two sizes give");
  EXPECT_EQ(migration.effective.at("zero_optimization.prefetch_bucket_size"), "900000");
}

TEST(MapAutos, SettingsWinOverArguments) {
  const ParseOptions arguments{.world = 2,
                               .autos = {{"train_micro_batch_size_per_gpu", "8"},
                                         {"gradient_accumulation_steps", "4"},
                                         {"train_batch_size", "64"},
                                         {"optimizer.params.lr", "1e-5"}}};
  const std::string text =
      "{train_batch_size: \"auto\", train_micro_batch_size_per_gpu: \"auto\", "
      "gradient_accumulation_steps: \"auto\", "
      "optimizer: {type: \"AdamW\", params: {lr: \"auto\"}}}";
  const Migration given = migrated(text, {.parse = arguments});
  EXPECT_EQ(settings_of(given)["train.micro_batch"], "8");
  EXPECT_EQ(settings_of(given)["train.global_batch"], "64");
  EXPECT_EQ(settings_of(given)["optimizer.lr"], "1e-05");
  const Migration changed =
      migrated(text, {.parse = arguments, .set = {"optimizer.lr=3e-4", "train.global_batch=32"}});
  EXPECT_EQ(errors_of(changed), Lines{});
  EXPECT_EQ(settings_of(changed)["optimizer.lr"], "3e-04");
  EXPECT_EQ(settings_of(changed)["train.global_batch"], "32");
  EXPECT_EQ(changed.effective.at("gradient_accumulation_steps"), "2");
}

// The file may leave train_batch_size out: the accumulation is the quotient all the same.
TEST(MapAutos, AGlobalBatchThatTheFileLeavesOut) {
  const std::string text =
      "{train_micro_batch_size_per_gpu: \"auto\", gradient_accumulation_steps: \"auto\"" + kAdam +
      "}";
  const auto with = [&](const std::string& global, ParseOptions parse = {.world = 3}) {
    return migrated(text, {.parse = std::move(parse),
                           .set = {"train.micro_batch=2", "train.global_batch=" + global}});
  };
  const Migration fits = with("12");
  EXPECT_EQ(errors_of(fits), Lines{});
  EXPECT_EQ(missing_of(fits), Lines{});
  EXPECT_EQ(settings_of(fits)["train.global_batch"], "12");
  EXPECT_EQ(fits.effective.at("gradient_accumulation_steps"), "2");
  const Migration arguments = with("12", {.world = 3,
                                          .autos = {{"train_micro_batch_size_per_gpu", "8"},
                                                    {"gradient_accumulation_steps", "4"},
                                                    {"train_batch_size", "96"}}});
  EXPECT_EQ(missing_of(arguments), Lines{});
  EXPECT_EQ(arguments.effective.at("gradient_accumulation_steps"), "2");
  EXPECT_EQ(missing_of(with("12", {})), Lines{});
  EXPECT_EQ(errors_of(with("13")),
            Lines{"f:1:2: train_micro_batch_size_per_gpu: train_batch_size 13 is no multiple of "
                  "micro batch 2 x 3 ranks; change one of the sizes, or the world"});
  const Migration open = migrated(text, {.parse = {.world = 3}, .set = {"train.global_batch=12"}});
  EXPECT_EQ(missing_of(open), Lines{"train_micro_batch_size_per_gpu: --set train.micro_batch=N, or "
                                    "per_device_train_batch_size with --trainer"});
}

// Arguments may name a key by its second name.
TEST(MapAutos, SecondNames) {
  const std::string alias = "zero_optimization.stage3_param_persistence_threshold";
  const Migration migration = migrated(
      "{train_micro_batch_size_per_gpu: 2, zero_optimization: {stage: 3, "
      "stage3_param_persistence_threshold: \"auto\"}" +
          kAdam + "}",
      {.parse = {.autos = {{alias, "777"}}}});
  EXPECT_EQ(missing_of(migration), Lines{});
  EXPECT_EQ(settings_of(migration)["zero.persist_below"], "777");
}

TEST(MapAutos, OneTrueDtypeDecidesTheOther) {
  const Migration migration = migrated(
      "{train_micro_batch_size_per_gpu: 2, bf16: {enabled: \"auto\"}, fp16: {enabled: true}" +
      kAdam + "}");
  EXPECT_EQ(missing_of(migration), Lines{});
  EXPECT_EQ(settings_of(migration)["train.dtype"], "fp16");
  EXPECT_EQ(key_of(migration, "bf16.enabled").to.size(), 1U);
}

// DeepSpeed's assertion holds for stages 2 and 3 (refused_deepspeed_test.cpp). A prescaled sum is
// the same mean, so that no key of the result stands for it.
TEST(MapBatch, PrescaledGradientsOfStage1NeedNothing) {
  const Migration migration = migrated(
      "{train_batch_size: 8, prescale_gradients: true, gradient_predivide_factor: 2, "
      "zero_optimization: {stage: 1}" +
          kAdam + "}",
      {.parse = {.world = 2}});
  EXPECT_EQ(errors_of(migration), Lines{});
  EXPECT_EQ(key_of(migration, "prescale_gradients").kind, KeyClass::kNotNeeded);
  EXPECT_EQ(key_of(migration, "gradient_predivide_factor").kind, KeyClass::kNotNeeded);
}

TEST(MapBatch, RanksOfAPipelineAreNotDataParallel) {
  const std::string sizes =
      "{train_micro_batch_size_per_gpu: 8, gradient_accumulation_steps: 8, "
      "pipeline: {activation_checkpoint_interval: 1}" +
      kAdam;
  const Migration one =
      migrated(sizes + "}", {.parse = {.world = 4}, .set = {"parallel.pipeline=4"}});
  EXPECT_EQ(errors_of(one), Lines{});
  EXPECT_EQ(settings_of(one)["train.global_batch"], "64");
  const Migration mesh =
      migrated(sizes + ", train_batch_size: 128}",
               {.parse = {.world = 8}, .set = {"parallel.pipeline=2", "parallel.tensor=2"}});
  EXPECT_EQ(errors_of(mesh), Lines{});
  EXPECT_EQ(settings_of(mesh)["train.global_batch"], "128");
  EXPECT_EQ(migrated(sizes + ", train_batch_size: 128}", {.set = {"parallel.pipeline=4"}}).world,
            8);
  EXPECT_EQ(
      errors_of(migrated(sizes + "}", {.parse = {.world = 6}, .set = {"parallel.pipeline=4"}}))
          .size(),
      1U);
  EXPECT_NE(
      migrated(sizes + "}", {.parse = {.world = 4}}).notes.back().find("parallel.pipeline=STAGES"),
      std::string::npos);
}

}  // namespace
}  // namespace sluice::migrate
