// Sources side by side, and requests that make no sense.
#include "configs/migrate/migrate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "configs/migrate/report.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::migrate {
namespace {

class MigrateRequest : public ::testing::Test {
 protected:
  std::string complaint(const MigrationRequest& request) {
    try {
      return error_text(migrate(request));
    } catch (const ConfigError& error) {
      return std::string("throws ") + error.what();
    } catch (const IoError& error) {
      return std::string("throws ") + error.what();
    }
  }
  static std::string line(const Migration& migration, const std::string& key) {
    for (const ConfigLine& entry : migration.lines) {
      if (entry.setting.key == key) return entry.setting.value;
    }
    return "";
  }

  // "mapped train.log_every=7", or the class and the note of a key that sets nothing.
  static std::string key_text(const Migration& migration, const std::string& path) {
    for (const MigratedKey& key : migration.keys) {
      if (key.path != path) continue;
      std::string text(class_name(key.kind));
      for (const Setting& to : key.to) text += " " + to.key + "=" + to.value;
      return key.to.empty() ? text + " (" + key.note + ")" : text;
    }
    return "";
  }

  testing::Scratch scratch_;
};

TEST_F(MigrateRequest, ExactlyOneSource) {
  EXPECT_EQ(complaint({}),
            "throws no source: name a DeepSpeed configuration, or give --launch, "
            "--accelerate, --megatron or --torchtitan");
  EXPECT_EQ(complaint({.deepspeed = "ds.json", .torchtitan = "train.toml"}),
            "throws --torchtitan and a DeepSpeed configuration (or --launch, --accelerate, "
            "--trainer) are different sources; give one");
  EXPECT_EQ(complaint({.deepspeed = "ds.json", .megatron = "t.py", .launch = "deepspeed t.py"}),
            "throws --megatron and a DeepSpeed configuration (or --launch, --accelerate, "
            "--trainer) are different sources; give one");
  EXPECT_EQ(complaint({.trainer = "--bf16"}),
            "throws no DeepSpeed configuration: name the file, or give --launch or --accelerate "
            "with a line or a file that names one");
}

TEST_F(MigrateRequest, FilesThatAreNotThere) {
  EXPECT_EQ(complaint({.deepspeed = "no.json"}),
            "throws no file 'no.json', and the text is no base64 of a configuration; name a "
            "DeepSpeed configuration, or give its JSON in urlsafe base64");
  scratch_.write("names.yaml",
                 "distributed_type: DEEPSPEED\nnum_processes: 2\n"
                 "deepspeed_config: {deepspeed_config_file: no.json}\n");
  EXPECT_EQ(complaint({.accelerate = "names.yaml"}),
            "throws the job names the DeepSpeed file 'no.json', and no such file is in this "
            "folder; start in the job's folder, or name the file as the first argument");
  EXPECT_EQ(complaint({.torchtitan = "no.toml"}),
            "throws --torchtitan no.toml: cannot be read as a file; check the path");
  EXPECT_EQ(complaint({.accelerate = "no.yaml"}),
            "throws --accelerate no.yaml: cannot be read as a file; check the path");
}

TEST_F(MigrateRequest, TrainingArgumentsThatAreNone) {
  scratch_.write("ds.json", "{\"train_batch_size\": 4}");
  EXPECT_EQ(complaint({.deepspeed = "ds.json", .trainer = "args.json"}),
            "throws --trainer args.json: no such file, and no arguments; give a JSON file, or "
            "arguments such as \"--learning_rate 2e-5\"");
  scratch_.write("ax.yml", "base_model: a\nmicro_batch_size: 2\n");
  EXPECT_NE(complaint({.deepspeed = "ds.json", .trainer = "ax.yml"}).find(" axolotl,"), -1UL);
}

TEST_F(MigrateRequest, AKeyOfAnotherFileHasItsPlaceThere) {
  scratch_.write("ds.json",
                 "{\"train_micro_batch_size_per_gpu\": 4, \"zero_optimization\": {\"stage\": 2}}");
  scratch_.write("acc.yaml",
                 "distributed_type: DEEPSPEED\ncompute_environment: AMAZON_SAGEMAKER\n"
                 "deepspeed_config:\n  deepspeed_config_file: ds.json\n");
  const std::string text = complaint({.deepspeed = "ds.json", .accelerate = "acc.yaml"});
  EXPECT_NE(text.find("acc.yaml:2:1: compute_environment: "), std::string::npos) << text;
}

TEST_F(MigrateRequest, TrainingArgumentsInPlaceOfTheDeepSpeedFile) {
  scratch_.write("ta.json", "{\"output_dir\": \"out\", \"per_device_train_batch_size\": 4}");
  EXPECT_EQ(complaint({.deepspeed = "ta.json"}),
            "ta.json: these are training arguments of Hugging Face's Trainer, not a DeepSpeed "
            "configuration; give the file with --trainer, beside the DeepSpeed file\n");
}

TEST_F(MigrateRequest, TheTrainersHomeFolderIsAVariable) {
  scratch_.write("ds.json", "{\"train_micro_batch_size_per_gpu\": 4}");
  const Migration migration =
      migrate({.deepspeed = "ds.json",
               .trainer = "--output_dir ~/out --max_steps 9 --per_device_train_batch_size 4"});
  EXPECT_EQ(error_text(migration), "");
  EXPECT_EQ(line(migration, "output.dir"), "\"${HOME}/out\"");
}

TEST_F(MigrateRequest, AVersionThatIsNone) {
  scratch_.write("ds.json", "{\"train_batch_size\": 4}");
  EXPECT_EQ(complaint({.deepspeed = "ds.json", .from_version = "new"}),
            "throws --from-version new: no version of DeepSpeed; expected one such as 0.19.8");
}

TEST_F(MigrateRequest, TwoNumbersOfRanks) {
  scratch_.write("ds.json", "{\"train_micro_batch_size_per_gpu\": 4}");
  EXPECT_EQ(complaint({.launch = "deepspeed --num_gpus 4 t.py --deepspeed ds.json", .world = 8}),
            "--launch starts 4 ranks, and --world gives 8; leave one of the two out\n");
}

TEST_F(MigrateRequest, SyntaxErrorsHaveLineAndColumn) {
  scratch_.write("ds.json", "{\n  \"a\": 1,\n  \"a\": 2\n}");
  const std::string text = complaint({.deepspeed = "ds.json"});
  EXPECT_TRUE(text.starts_with("ds.json:3:3: ")) << text;
}

TEST_F(MigrateRequest, ASettingFillsAnAutoAndReplacesAValue) {
  scratch_.write("ds.json",
                 "{\"train_micro_batch_size_per_gpu\": \"auto\", \"optimizer\": {\"type\": "
                 "\"Adam\", \"params\": {\"lr\": \"auto\"}}, \"gradient_clipping\": 2.0}");
  const Migration migration =
      migrate({.deepspeed = "ds.json",
               .set = {"train.micro_batch=3", "optimizer.lr=2e-5", "train.clip=0.5"}});
  EXPECT_EQ(error_text(migration), "");
  EXPECT_EQ(line(migration, "train.micro_batch"), "3");
  EXPECT_EQ(line(migration, "optimizer.lr"), "2e-5");
  EXPECT_EQ(line(migration, "train.clip"), "0.5");
}

constexpr char kFsdp[] =
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\nfsdp_config:\n"
    "  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n";

TEST_F(MigrateRequest, TheTrainerFillsAnFsdpFile) {
  scratch_.write("fsdp.yaml", kFsdp);
  const Migration migration =
      migrate({.accelerate = "fsdp.yaml",
               .trainer = "--per_device_train_batch_size 4 --max_steps 9 --learning_rate 2e-5"});
  EXPECT_EQ(error_text(migration), "");
  EXPECT_EQ(line(migration, "zero.stage"), "3");
  EXPECT_EQ(line(migration, "train.micro_batch"), "4");
  EXPECT_EQ(line(migration, "train.steps"), "9");
  EXPECT_EQ(line(migration, "schedule.type"), "linear");
}

TEST_F(MigrateRequest, ALaunchLineWithAnFsdpFileNamesTheFlag) {
  scratch_.write("fsdp.yaml", kFsdp);
  EXPECT_EQ(complaint({.launch = "accelerate launch --config_file fsdp.yaml t.py"}),
            "fsdp.yaml: distributed_type FSDP has no DeepSpeed configuration; give the file with "
            "--accelerate, without --launch\n");
  EXPECT_EQ(complaint({.accelerate = "fsdp.yaml", .launch = "python t.py"}),
            "throws --launch and an --accelerate file without DeepSpeed both name the ranks; give "
            "--accelerate alone");
  EXPECT_EQ(complaint({.megatron = "pretrain_gpt.py", .from_version = "0.16.0"}),
            "throws --from-version is DeepSpeed's; leave the flag out");
}

TEST_F(MigrateRequest, TensorParallelRanksNeedTheWorld) {
  scratch_.write(
      "ds.json",
      "{\"train_micro_batch_size_per_gpu\": 1, \"tensor_parallel\": {\"autotp_size\": 2}, "
      "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-3}}}");
  EXPECT_EQ(complaint({.deepspeed = "ds.json"}),
            "ds.json leaves open what a run needs; give:\n  ranks of the job: --world N\n");
  EXPECT_EQ(complaint({.deepspeed = "ds.json", .world = 4}), "");
}

TEST_F(MigrateRequest, ADefaultOfTheTrainerDoesNotReplaceAWrittenKey) {
  scratch_.write("ds.json",
                 "{\"train_micro_batch_size_per_gpu\": \"auto\", \"steps_per_print\": 7}");
  const Migration migration =
      migrate({.deepspeed = "ds.json", .trainer = "--per_device_train_batch_size 4 --max_steps 9"});
  EXPECT_EQ(error_text(migration), "");
  EXPECT_EQ(line(migration, "train.log_every"), "7");
  EXPECT_EQ(line(migration, "train.steps"), "9");
  EXPECT_EQ(key_text(migration, "steps_per_print"), "mapped train.log_every=7");
  EXPECT_EQ(key_text(migration, "trainer.save_steps"), "mapped checkpoint.every=500");
}

TEST_F(MigrateRequest, AKeyThatAnotherOneOverridesIsNotMapped) {
  scratch_.write("ds.json",
                 "{\"train_micro_batch_size_per_gpu\": \"auto\", \"steps_per_print\": 2000}");
  const Migration migration =
      migrate({.deepspeed = "ds.json",
               .trainer = "--per_device_train_batch_size 4 --max_steps 9 --logging_steps 10"});
  EXPECT_EQ(line(migration, "train.log_every"), "10");
  EXPECT_EQ(key_text(migration, "trainer.logging_steps"), "mapped train.log_every=10");
  EXPECT_EQ(key_text(migration, "steps_per_print"),
            "not_needed (trainer.logging_steps gives train.log_every: 10)");
}

TEST_F(MigrateRequest, AShareOfUnknownStepsStaysAShare) {
  scratch_.write("ds.json",
                 "{\"train_micro_batch_size_per_gpu\": 4, \"optimizer\": {\"type\": \"Adam\", "
                 "\"params\": {\"lr\": 1e-3}}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                 "{\"warmup_num_steps\": \"auto\"}}}");
  const Migration migration = migrate(
      {.deepspeed = "ds.json",
       .trainer = "--per_device_train_batch_size 4 --learning_rate 1e-3 --warmup_ratio 0.07"});
  EXPECT_EQ(line(migration, "schedule.warmup_steps"), "7%");
  ASSERT_EQ(migration.missing.size(), 1U) << error_text(migration);
  EXPECT_EQ(migration.missing[0].path, "trainer.num_train_epochs");
  EXPECT_EQ(key_text(migration, "trainer.warmup_steps"), "not_needed (0: warmup_ratio decides)");
  const Migration no_share = migrate(
      {.deepspeed = "ds.json",
       .trainer = "--per_device_train_batch_size 4 --learning_rate 1e-3 --warmup_ratio 1.5"});
  EXPECT_THAT(error_text(no_share), ::testing::HasSubstr("schedule.warmup_steps: found '1.5'"));
}

constexpr char kPlain[] =
    "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 8, \"optimizer\": "
    "{\"type\": \"AdamW\", \"params\": {\"lr\": 2e-5}}}";

TEST_F(MigrateRequest, ATrainersScriptIsReadWithoutAuto) {
  scratch_.write("ds.json", kPlain);
  const std::string launch =
      "deepspeed --num_gpus 4 t.py --deepspeed ds.json --per_device_train_batch_size 1 "
      "--gradient_accumulation_steps 8 --max_steps 700 --gradient_checkpointing True --seed 7 "
      "--save_steps 100 --output_dir out/x --my_flag 3";
  const Migration migration = migrate({.launch = launch + " --learning_rate 2e-5"});
  EXPECT_EQ(error_text(migration), "");
  EXPECT_EQ(line(migration, "train.steps"), "700");
  EXPECT_EQ(line(migration, "train.seed"), "7");
  EXPECT_EQ(line(migration, "recompute.mode"), "full");
  EXPECT_EQ(line(migration, "checkpoint.every"), "100");
  EXPECT_EQ(line(migration, "output.dir"), "\"out/x\"");
  EXPECT_EQ(key_text(migration, "script.my_flag"),
            "ignored_upstream (an argument of your script, not of the Trainer)");
  EXPECT_THAT(complaint({.launch = launch}),
              ::testing::HasSubstr("optimizer.params.lr: 2e-5 here, and learning_rate is 5e-05"));
}

TEST_F(MigrateRequest, ATrainersScriptUnderAccelerateIsRead) {
  scratch_.write("acc.yaml",
                 "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: bf16\n"
                 "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 1\n");
  const Migration migration = migrate(
      {.launch = "accelerate launch --config_file acc.yaml t.py --per_device_train_batch_size 2 "
                 "--max_steps 9 --bf16"});
  EXPECT_EQ(error_text(migration), "");
  EXPECT_EQ(line(migration, "train.micro_batch"), "2");
  EXPECT_EQ(line(migration, "train.global_batch"), "8");
  EXPECT_EQ(line(migration, "train.steps"), "9");
}

TEST_F(MigrateRequest, AMegatronDeepSpeedLineIsRefused) {
  scratch_.write("ds.json", kPlain);
  EXPECT_EQ(complaint({.launch = "deepspeed --num_gpus 4 pretrain_gpt.py --num-layers 24 "
                                 "--tensor-model-parallel-size 2 --deepspeed_config ds.json"}),
            "--launch: --tensor-model-parallel-size: an argument of Megatron-DeepSpeed, whose "
            "model and mesh would be lost; give the command with --megatron in place of --launch, "
            "beside the DeepSpeed file\n");
  const std::string line = "deepspeed --num_gpus 4 t.py --deepspeed_config ds.json --num-layers 24";
  EXPECT_NE(complaint({.launch = line + " --num-attention-heads 16"}), "");
  EXPECT_EQ(error_text(migrate({.launch = line})), "");  // a script of the user's own
}

TEST_F(MigrateRequest, ArgumentsOfAnotherScriptAreNoted) {
  scratch_.write("ds.json", kPlain);
  const Migration migration = migrate(
      {.launch = "deepspeed --num_gpus 4 t.py --deepspeed --deepspeed_config ds.json --seed 7 "
                 "--epochs=3"});
  EXPECT_EQ(error_text(migration), "");
  EXPECT_EQ(line(migration, "train.seed"), "");
  EXPECT_THAT(migration.notes,
              ::testing::Contains(
                  "2 arguments of the script were not read: --seed, --epochs; give each value that "
                  "the run needs with --set, or arguments of Hugging Face's Trainer with "
                  "--trainer"));
}

constexpr char kMegatron[] =
    "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
    "--tensor-model-parallel-size 2 --micro-batch-size 4 --global-batch-size 32 --lr 1e-4 "
    "--train-iters 500 --clip-grad 0.5 --log-interval 5 --bf16 --data-path corpus --vocab-size "
    "50257 "
    "--tokenizer-type NullTokenizer --deepspeed --deepspeed_config ds.json --zero-stage 2";

TEST_F(MigrateRequest, MegatronDeepSpeedHasArgumentsAndAFile) {
  scratch_.write("ds.json",
                 "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": \"auto\",\n"
                 " \"steps_per_print\": 100,\n"
                 " \"bf16\": {\"enabled\": true}, \"optimizer\": {\"type\": \"Adagrad\"},\n"
                 " \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": "
                 "\"cpu\"}}}");
  const Migration migration = migrate({.deepspeed = "ds.json", .megatron = kMegatron});
  EXPECT_EQ(error_text(migration), "");
  EXPECT_EQ(migration.source, "Megatron-DeepSpeed");
  EXPECT_EQ(migration.world, 8);
  EXPECT_EQ(line(migration, "model.layers"), "24");
  EXPECT_EQ(line(migration, "parallel.tensor"), "2");
  EXPECT_EQ(line(migration, "optimizer.lr"), "1e-04");
  EXPECT_EQ(line(migration, "train.global_batch"), "32");
  EXPECT_EQ(line(migration, "train.micro_batch"), "4");
  EXPECT_EQ(line(migration, "train.clip"), "0.5");
  EXPECT_EQ(line(migration, "zero.stage"), "2");
  EXPECT_EQ(line(migration, "offload.optimizer"), "host");
  EXPECT_EQ(
      key_text(migration, "optimizer.type"),
      "ignored_upstream (Megatron-DeepSpeed makes optimizer and schedule from the arguments)");
  EXPECT_EQ(line(migration, "train.log_every"), "5");
  EXPECT_EQ(key_text(migration, "steps_per_print"),
            "not_needed (--log-interval gives train.log_every: 5)");
  EXPECT_EQ(key_text(migration, "--deepspeed_config"),
            "not_needed (the DeepSpeed file beside the arguments decides)");
}

TEST_F(MigrateRequest, MegatronDeepSpeedsSourcesMustAgree) {
  scratch_.write("ds.json",
                 "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4,\n"
                 " \"gradient_clipping\": 1.0, \"bf16\": {\"enabled\": true}}");
  MigrationRequest request{.deepspeed = "ds.json", .megatron = kMegatron};
  EXPECT_EQ(complaint(request),
            "ds.json:1:2: train_batch_size: train.global_batch is 64 here, and 32 by "
            "--global-batch-size; make the two equal, or give --set train.global_batch=VALUE\n"
            "ds.json:2:2: gradient_clipping: train.clip is 1 here, and 0.5 by --clip-grad; make "
            "the two equal, or give --set train.clip=VALUE\n");
  request.set = {"train.clip=1", "train.global_batch=64"};
  EXPECT_EQ(complaint(request), "");
  request.deepspeed.clear();
  EXPECT_THAT(
      complaint(request),
      ::testing::HasSubstr("--deepspeed_config: an argument of Megatron-DeepSpeed: give the "
                           "file of --deepspeed_config too, `sluice migrate "
                           "ds_config.json --megatron ...`"));
}

TEST_F(MigrateRequest, FilesOfOthersAreNamed) {
  scratch_.write("run.yaml", "model:\n  from: llama\n\ntrain:\n  steps: 5\n");
  EXPECT_EQ(complaint({.deepspeed = "run.yaml"}),
            "run.yaml: this is already a Sluice configuration: `sluice train run.yaml` starts the "
            "run\n");
}

TEST_F(MigrateRequest, ADefaultOfTheShellIsNoted) {
  scratch_.write("ds.json", kPlain);
  const std::string what =
      "${LR:-1e-3}: the default '1e-3' was taken; if the job sets the variable, write its value "
      "instead";
  EXPECT_THAT(
      migrate({.launch = "deepspeed t.py --deepspeed ds.json --learning_rate ${LR:-1e-3}"}).notes,
      ::testing::Contains("--launch: " + what));
  EXPECT_THAT(migrate({.deepspeed = "ds.json", .trainer = "--learning_rate ${LR:-1e-3}"}).notes,
              ::testing::Contains("--trainer: " + what));
  EXPECT_THAT(migrate({.megatron = "pretrain_gpt.py --lr ${LR:-1e-3}"}).notes,
              ::testing::Contains("--megatron: " + what));
}

TEST_F(MigrateRequest, TheModelOfAScriptIsNamed) {
  scratch_.write("ds.json", kPlain);
  const std::string what =
      "model_name_or_path org/name-7b was not read; give --model FOLDER with the Hugging Face "
      "folder of this model";
  const std::string trainers = "--deepspeed ds.json --model_name_or_path org/name-7b --max_steps 5";
  MigrationRequest request{.launch = "deepspeed --num_gpus 2 t.py " + trainers};
  EXPECT_THAT(migrate(request).notes, ::testing::Contains(what));
  request.set = {"model.from=folder"};
  EXPECT_THAT(migrate(request).notes, ::testing::Not(::testing::Contains(what)));
  EXPECT_THAT(migrate({.launch = "deepspeed --num_gpus 2 t.py --deepspeed_config ds.json "
                                 "--model_name_or_path=org/name-7b"})
                  .notes,
              ::testing::Contains(what));
  EXPECT_THAT(
      migrate({.deepspeed = "ds.json", .trainer = "{\"model_name_or_path\": \"org/name-7b\"}"})
          .notes,
      ::testing::Contains(what));
}

TEST_F(MigrateRequest, AnotherFileThanTheJobsIsNoted) {
  scratch_.write("ds.json", kPlain);
  const std::string what =
      "the job names the DeepSpeed file conf/other.json, and ds.json was read; leave the file out "
      "of the command to read the job's";
  const auto notes = [](const std::string& named) {
    return migrate({.deepspeed = "ds.json",
                    .launch = "deepspeed --num_gpus 2 t.py --deepspeed_config " + named})
        .notes;
  };
  EXPECT_THAT(notes("conf/other.json"), ::testing::Contains(what));
  EXPECT_THAT(notes("/home/a/ds.json"),
              ::testing::Not(::testing::Contains(::testing::HasSubstr("the job names"))));
}

}  // namespace
}  // namespace sluice::migrate
