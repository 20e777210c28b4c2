// Hugging Face's TrainingArguments: reading, "auto" values, contradictions, settings.
#include <gtest/gtest.h>

#include <set>

#include "configs/migrate/launcher/training_arguments.hpp"
#include "tests/configs/migrate/launcher/launch_cases.hpp"

namespace sluice::migrate {
namespace {

using Words = std::vector<std::string>;

TrainerValues read(const std::string& text) {
  TrainerValues values = read_training_arguments(text, "a.json");
  EXPECT_EQ(texts(values.errors), Words{});
  return values;
}

Migration map(const std::string& text, const TrainerContext& context) {
  Migration migration;
  MigrationDraft draft(migration);
  map_trainer(read(text), context, draft);
  EXPECT_EQ(texts(migration.errors), Words{});
  return migration;
}

std::string setting(const Migration& migration, const std::string& key) {
  for (const ConfigLine& line : migration.lines) {
    if (line.setting.key == key) return line.setting.value;
  }
  return "";
}

TEST(TrainerKeys, HaveDifferentNamesAndOneNote) {
  std::set<std::string_view> names;
  for (const TrainerKey& key : trainer_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_TRUE(key.kind == KeyClass::kMapped || !key.note.empty()) << key.name;
    EXPECT_EQ(key.note.find("sluice export"), std::string_view::npos) << key.name;
    EXPECT_TRUE(key.successor.empty() || find_trainer_key(key.successor) != nullptr) << key.name;
  }
}

TEST(TrainerValues, ReadsACommandLine) {
  const TrainerValues values = read(
      "--learning-rate 2e-5 --bf16 --fp16 False --per_device_train_batch_size=4 "
      "--report_to wandb tensorboard --no_dataloader_pin_memory --max_steps -1 "
      "--model_name_or_path gpt2 --stages 1 2 --do_it --adam_beta2 .95 --run_name 5 "
      "--lr_scheduler_kwargs '{\"min_lr\": 1e-6}' --evaluation_strategy steps");
  EXPECT_EQ(values.number("learning_rate"), 2e-5);
  EXPECT_TRUE(values.flag("bf16"));
  EXPECT_FALSE(values.flag("fp16"));
  EXPECT_EQ(values.count("per_device_train_batch_size"), 4);
  EXPECT_EQ(values.text("report_to"), "wandb tensorboard");
  EXPECT_FALSE(values.flag("dataloader_pin_memory"));
  EXPECT_EQ(values.count("max_steps"), -1);
  EXPECT_EQ(values.json("adam_beta2"), "0.95");
  EXPECT_EQ(values.text("run_name"), "5");
  EXPECT_EQ(values.json("lr_scheduler_kwargs"), "{\"min_lr\": 1e-6}");
  EXPECT_EQ(values.text("eval_strategy"), "steps");
  EXPECT_EQ(values.find("model_name_or_path"), nullptr);
  // Defaults.
  EXPECT_EQ(values.count("seed"), 42);
  EXPECT_EQ(values.text("lr_scheduler_type"), "linear");
  EXPECT_EQ(values.text("output_dir"), "");

  Words script;
  for (const TrainerArgument& argument : values.given) {
    if (argument.key == nullptr) script.push_back(argument.name + "=" + to_json(argument.value));
  }
  EXPECT_EQ(script, (Words{"model_name_or_path=\"gpt2\"", "stages=\"1 2\"", "do_it=true"}));
}

// LLaMA-Factory's argument: a run of all weights would take the place of an adapter's.
TEST(TrainerValues, AnAdapterIsAnError) {
  const auto errors = [](const std::string& text) {
    return texts(read_training_arguments(text, "a.json").errors);
  };
  EXPECT_EQ(errors("--learning_rate 1e-4 --finetuning_type lora"),
            Words{"--trainer: argument 3: --finetuning_type: 'lora': Sluice has no adapters and "
                  "trains all weights; leave the argument out if this is meant"});
  EXPECT_EQ(errors("--learning_rate 1e-4 --finetuning_type full"), Words{});
}

TEST(TrainerValues, ReadsAFile) {
  const TrainerValues values = read(
      "{\"learning_rate\": 1e-4,\n \"bf16\": true, \"report_to\": [\"none\"], \"_n_gpu\": 1,\n"
      " \"warmup_steps\": null, \"resume_from_checkpoint\": true}");
  EXPECT_EQ(values.number("learning_rate"), 1e-4);
  EXPECT_TRUE(values.flag("bf16"));
  EXPECT_EQ(values.text("report_to"), "none");
  EXPECT_EQ(values.number("warmup_steps"), 0);
  EXPECT_EQ(values.find("bf16")->place.line, 2);
  EXPECT_EQ(values.find("bf16")->place.column, 2);
}

// The rows of HfTrainerDeepSpeedConfig.
TEST(TrainerAutos, AreThoseOfHuggingFace) {
  const TrainerValues values = read(
      "--learning_rate 2e-5 --per_device_train_batch_size 4 --gradient_accumulation_steps 2 "
      "--bf16 --max_steps 1001 --warmup_ratio 0.03 --weight_decay 0.1 --max_grad_norm 0.5");
  const std::map<std::string, std::string, std::less<>> expected{
      {"train_micro_batch_size_per_gpu", "4"},
      {"gradient_accumulation_steps", "2"},
      {"train_batch_size", "64"},
      {"gradient_clipping", "0.5"},
      {"optimizer.params.lr", "2e-5"},
      {"optimizer.params.betas", "[0.9, 0.999]"},
      {"optimizer.params.eps", "1e-08"},
      {"optimizer.params.weight_decay", "0.1"},
      {"scheduler.params.warmup_min_lr", "0"},
      {"scheduler.params.warmup_max_lr", "2e-5"},
      {"scheduler.params.warmup_num_steps", "31"},
      {"scheduler.params.total_num_steps", "1001"},
      {"fp16.enabled", "false"},
      {"bf16.enabled", "true"},
      {"zero_optimization.reduce_bucket_size", "16777216"},
      {"zero_optimization.stage3_prefetch_bucket_size", "15099494"},
      {"zero_optimization.stage3_param_persistence_threshold", "40960"},
  };
  EXPECT_EQ(trainer_autos(values, {.zero_stage = 3, .world = 8, .hidden = 4096}), expected);
}

TEST(TrainerAutos, LeaveOutWhatIsNotKnown) {
  const auto autos = trainer_autos(read("--warmup_ratio 0.1"), {});
  EXPECT_FALSE(autos.contains("train_batch_size"));
  EXPECT_FALSE(autos.contains("scheduler.params.total_num_steps"));
  EXPECT_FALSE(autos.contains("scheduler.params.warmup_num_steps"));
  EXPECT_FALSE(autos.contains("zero_optimization.reduce_bucket_size"));
  // DeepSpeed 0.19.6 refuses a warm-up of 0 steps, so the Trainer gives 1.
  EXPECT_EQ(trainer_autos(read("--bf16"), {}).at("scheduler.params.warmup_num_steps"), "1");
  EXPECT_EQ(trainer_autos(read("--bf16"), {.steps = 7}).at("scheduler.params.total_num_steps"),
            "7");
  // Stages below 3 have no such buffers.
  EXPECT_FALSE(trainer_autos(read("--bf16"), {.zero_stage = 2, .hidden = 8})
                   .contains("zero_optimization.stage3_prefetch_bucket_size"));
}

TEST(TrainerMismatches, NameBothValues) {
  const HjsonNode deepspeed =
      read_hjson(
          "{\"train_micro_batch_size_per_gpu\": 8,\n\"gradient_accumulation_steps\": \"auto\",\n"
          "\"gradient_clipping\": 1,\n\"optimizer\": {\"params\": {\"lr\": 3e-5, \"betas\": [0.9, "
          "0.95], \"eps\": 1e-8}},\n\"fp16\": {\"enabled\": false}, \"bf16\": {\"enabled\": true}}")
          .root;
  const TrainerValues values = read("--learning_rate 2e-5 --per_device_train_batch_size 4");
  EXPECT_EQ(
      texts(trainer_mismatches(values, {.world = 8}, deepspeed, "ds.json")),
      (Words{
          "ds.json:1:36: train_micro_batch_size_per_gpu: 8 here, and per_device_train_batch_size "
          "is 4; the Trainer refuses two values: make them equal, or write \"auto\"",
          "ds.json:4:32: optimizer.params.lr: 3e-5 here, and learning_rate is 2e-5; the Trainer "
          "refuses two values: make them equal, or write \"auto\"",
          "ds.json:4:47: optimizer.params.betas: [0.9, 0.95] here, and adam_beta1 and adam_beta2 "
          "is [0.9, 0.999]; the Trainer refuses two values: make them equal, or write \"auto\"",
          "ds.json:5:49: bf16.enabled: true here, and bf16 or bf16_full_eval is false; the "
          "Trainer refuses two values: make them equal, or write \"auto\""}));
}

TEST(TrainerMap, SetsWhatDeepSpeedHasNoWordFor) {
  const Migration migration =
      map("--output_dir out --max_steps 500 --save_steps 100 --save_total_limit 2 "
          "--logging_steps 5 --eval_strategy steps --eval_steps 50 --seed 7 "
          "--gradient_checkpointing --report_to tensorboard --warmup_ratio 0.03 "
          "--lr_scheduler_type cosine --deepspeed ds.json",
          {});
  EXPECT_EQ(
      settings(migration),
      (Words{"train.steps=500", "optimizer.lr=5e-05", "optimizer.weight_decay=0",
             "optimizer.decay=matrices", "optimizer.type=adamw", "optimizer.betas=[0.9, 0.999]",
             "optimizer.eps=1e-08", "schedule.type=cosine", "schedule.counting=from_zero",
             "schedule.warmup_steps=15", "train.log_every=5", "train.eval_every=50",
             "checkpoint.every=100", "checkpoint.keep=2", "train.seed=7", "output.dir=\"out\"",
             "recompute.mode=full", "output.tensorboard=true"}));
  EXPECT_EQ(migration.missing.size(), 0U);
}

TEST(TrainerMap, DeepSpeedsOwnSectionsComeFirst) {
  const Migration migration =
      map("--max_steps 5 --learning_rate 1e-4 --optim adafactor --lr_scheduler_type inverse_sqrt "
          "--warmup_steps 3",
          {.has_optimizer = true, .has_scheduler = true});
  EXPECT_EQ(setting(migration, "optimizer.lr"), "");
  EXPECT_EQ(setting(migration, "schedule.type"), "");
  EXPECT_EQ(key_lines(migration),
            (Words{"trainer.max_steps mapped", "trainer.learning_rate mapped",
                   "trainer.optim ignored_upstream", "trainer.lr_scheduler_type ignored_upstream",
                   "trainer.warmup_steps mapped"}));
}

TEST(TrainerMap, WithoutDeepSpeed) {
  const Migration migration =
      map("--max_steps 5 --bf16 --per_device_train_batch_size 2 --gradient_accumulation_steps 3",
          {.has_deepspeed = false, .world = 4});
  EXPECT_EQ(setting(migration, "train.micro_batch"), "2");
  EXPECT_EQ(setting(migration, "train.global_batch"), "24");
  EXPECT_EQ(setting(migration, "train.clip"), "1");
  EXPECT_EQ(setting(migration, "train.dtype"), "bf16");
}

TEST(TrainerMap, AsksForTheStepsOfEpochs) {
  const Migration migration = map("--num_train_epochs 2", {});
  ASSERT_EQ(migration.missing.size(), 1U);
  EXPECT_EQ(migration.missing[0].path, "trainer.num_train_epochs");
  EXPECT_EQ(migration.missing[0].give,
            "--set train.steps=N: 2 epochs are N = epochs x samples / global batch, and the number "
            "of samples is not known here");
  EXPECT_EQ(map("--num_train_epochs 2", {.steps = 10}).missing.size(), 0U);
}

struct Schedule {
  std::string arguments;
  std::string type, counting, warmup, min_lr;
  std::string stops;  // note of lr_scheduler_type, or ""
};

TEST(TrainerMap, Schedules) {
  const std::vector<Schedule> cases{
      {"", "linear", "from_zero", "0", "", ""},
      {"--warmup_steps 9", "linear", "from_zero", "9", "", ""},
      {"--warmup_steps 0.05", "linear", "from_zero", "6", "", ""},
      {"--warmup_steps 9 --warmup_ratio 0.5", "linear", "from_zero", "9", "", ""},
      {"--lr_scheduler_type constant --warmup_steps 9", "constant", "from_zero", "", "", ""},
      {"--lr_scheduler_type constant_with_warmup --warmup_steps 9", "constant", "from_zero", "9",
       "", ""},
      {"--lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs '{\"min_lr\": 1e-6}'",
       "cosine", "from_zero", "0", "1e-6", ""},
      {"--lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs '{\"min_lr_rate\": 0.1}'",
       "cosine", "from_zero", "0", "10%", ""},
      {"--lr_scheduler_type cosine_warmup_with_min_lr --lr_scheduler_kwargs '{\"min_lr\": 0}'",
       "cosine", "from_one", "0", "0", ""},
      {"--lr_scheduler_type polynomial", "linear", "from_zero", "0", "1e-7", ""},
      {"--lr_scheduler_type warmup_stable_decay --lr_scheduler_kwargs '{\"num_decay_steps\": 20, "
       "\"decay_type\": \"linear\", \"min_lr_ratio\": 0.5}'",
       "wsd", "from_zero", "0", "50%", ""},
      {"--lr_scheduler_type warmup_stable_decay --lr_scheduler_kwargs '{\"num_decay_steps\": 20}'",
       "", "", "", "",
       "Sluice's wsd rises and falls in straight lines; warmup_type is linear, decay_type cosine: "
       "set both to linear"},
      {"--lr_scheduler_type cosine --lr_scheduler_kwargs '{\"num_cycles\": 2}'", "", "", "", "",
       "Sluice's cosine falls once: num_cycles 0.5; take num_cycles away"},
      {"--lr_scheduler_type cosine_with_min_lr", "", "", "", "",
       "give min_lr or min_lr_rate in lr_scheduler_kwargs, one of them"},
      {"--lr_scheduler_type polynomial --lr_scheduler_kwargs '{\"power\": 2}'", "", "", "", "",
       "Sluice's fall is a straight line: power 1; take power away"},
      {"--lr_scheduler_type inverse_sqrt", "", "", "", "",
       "Sluice has no schedule inverse_sqrt; give schedule.type with --set"},
      {"--lr_scheduler_kwargs '{\"x\": 2}'", "", "", "", "",
       "lr_scheduler_kwargs: x belongs to no schedule linear; take it away"},
  };
  for (const Schedule& schedule : cases) {
    SCOPED_TRACE(schedule.arguments);
    const Migration migration = map("--max_steps 101 " + schedule.arguments, {});
    EXPECT_EQ(setting(migration, "schedule.type"), schedule.type);
    EXPECT_EQ(setting(migration, "schedule.counting"), schedule.counting);
    EXPECT_EQ(setting(migration, "schedule.warmup_steps"), schedule.warmup);
    EXPECT_EQ(setting(migration, "schedule.min_lr"), schedule.min_lr);
    std::string stops;
    for (const MigratedKey& key : migration.keys) stops += key.stops ? key.note : "";
    EXPECT_EQ(stops, schedule.stops);
  }
}

struct Optimizer {
  std::string name;
  std::string type, momentum;
  std::string key;
};

TEST(TrainerMap, Optimizers) {
  const std::vector<Optimizer> cases{
      {"adamw_torch", "adamw", "", "trainer.optim mapped"},
      {"adamw_hf", "adamw", "", "trainer.optim changed"},
      {"paged_adamw_32bit", "adamw", "", "trainer.optim changed"},
      {"lion_32bit", "lion", "", "trainer.optim mapped"},
      {"sgd", "sgd", "0", "trainer.optim mapped"},
      {"adamw_bnb_8bit", "", "", "trainer.optim refused_unless_default!"},
      {"galore_adamw", "", "", "trainer.optim refused_unless_default!"},
  };
  for (const Optimizer& optimizer : cases) {
    SCOPED_TRACE(optimizer.name);
    const Migration migration = map("--optim " + optimizer.name, {});
    EXPECT_EQ(setting(migration, "optimizer.type"), optimizer.type);
    EXPECT_EQ(setting(migration, "optimizer.momentum"), optimizer.momentum);
    EXPECT_EQ(key_lines(migration), Words{optimizer.key});
  }
}

TEST(TrainerMap, RefusedArgumentsStopUnlessTheyHaveTheirDefault) {
  EXPECT_EQ(
      key_lines(map("{\"fsdp\": [], \"fsdp_config\": {}, \"label_smoothing_factor\": 0, "
                    "\"neftune_noise_alpha\": null, \"auto_find_batch_size\": false, "
                    "\"data_seed\": null}",
                    {})),
      (Words{"trainer.fsdp refused_unless_default", "trainer.fsdp_config refused_unless_default",
             "trainer.label_smoothing_factor refused_unless_default",
             "trainer.neftune_noise_alpha refused_unless_default",
             "trainer.auto_find_batch_size refused_unless_default",
             "trainer.data_seed refused_unless_default"}));
  EXPECT_EQ(key_lines(map("--fsdp full_shard --label_smoothing_factor 0.1 --neftune_noise_alpha 5 "
                          "--auto_find_batch_size --data_seed 3 --use_cpu --torch_compile",
                          {})),
            (Words{"trainer.fsdp refused_unless_default!",
                   "trainer.label_smoothing_factor refused_unless_default!",
                   "trainer.neftune_noise_alpha refused_unless_default!",
                   "trainer.auto_find_batch_size refused_unless_default!",
                   "trainer.data_seed refused_unless_default!", "trainer.use_cpu changed",
                   "trainer.torch_compile not_needed"}));
}

TEST(TrainerMap, ArgumentsOfTheScriptAreIgnored) {
  EXPECT_EQ(key_lines(map("--max_steps 5 save_steps --model_name_or_path gpt2", {})),
            (Words{"trainer.max_steps mapped", "script.save_steps ignored_upstream",
                   "script.model_name_or_path ignored_upstream"}));
}

TEST(TrainerMap, StrategiesOtherThanSteps) {
  const Migration migration =
      map("--max_steps 1000 --save_strategy epoch --logging_strategy no --logging_steps 5 "
          "--save_steps 9",
          {});
  EXPECT_EQ(setting(migration, "checkpoint.every"), "");
  EXPECT_EQ(setting(migration, "train.log_every"), "");
  EXPECT_EQ(key_lines(migration),
            (Words{"trainer.max_steps mapped", "trainer.save_strategy changed",
                   "trainer.logging_strategy mapped", "trainer.logging_steps ignored_upstream",
                   "trainer.save_steps ignored_upstream"}));
  // A share of the steps.
  EXPECT_EQ(setting(map("--max_steps 101 --save_steps 0.1", {}), "checkpoint.every"), "11");
  EXPECT_EQ(setting(map("--max_steps 1 --save_strategy no", {}), "checkpoint.every"), "0");
}

}  // namespace
}  // namespace sluice::migrate
