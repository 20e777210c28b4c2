#include "configs/migrate/peers/torchtitan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "configs/migrate/peers/torchtitan_keys.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "tests/configs/migrate/peers/peer_result.hpp"

namespace sluice::migrate {
namespace {

Migration migrate_toml(const std::string& text, int world = 0) {
  return migrate_torchtitan(text, {.file = "t.toml", .world = world});
}

TEST(Torchtitan, AFileBecomesAConfiguration) {
  Migration result = migrate_toml(R"([metrics]
log_freq = 5
enable_tensorboard = true
[model]
name = "llama3"
flavor = "8B"
[optimizer]
lr = 3e-4
[lr_scheduler]
warmup_steps = 200
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
[parallelism]
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "full"
[checkpoint]
enable = true
interval = 100
)",
                                  8);
  EXPECT_EQ(problems_of(result), "");
  check_result(result);
  EXPECT_EQ(problems_of(result), "");
  EXPECT_EQ(write_yaml(result), R"(# Carried over from t.toml (torchtitan) by `sluice migrate`.

model:
  type: llama                       # model.name "llama3"
  layers: 32                        # model.flavor "8B"
  hidden: 4096                      # model.flavor "8B"
  heads: 32                         # model.flavor "8B"
  kv_heads: 8                       # model.flavor "8B"
  ffn: 14336                        # model.flavor "8B"
  vocab: 128256                     # model.flavor "8B"
  seq: 8192                         # training.seq_len 8192
  tie_embeddings: false             # model.flavor "8B"
  norm_eps: 1e-05                   # model.flavor "8B"
  rope_theta: 500000                # model.flavor "8B"
  rope_scaling: llama3              # model.flavor "8B"

data:
  # FILL IN the data: text, or token files (Megatron's .bin and .idx) as train and valid.
  # text: ["corpus/**/*.jsonl"]
  # tokenizer: path/to/huggingface_folder

train:
  dtype: bf16                       # training.mixed_precision_param "bfloat16", the default there
  eval_steps: 0                     # validation.enable false, the default there
  log_every: 5                      # metrics.log_freq 5

optimizer:
  decay: all                        # torchtitan decays norms and biases too

schedule:
  type: wsd                         # lr_scheduler.decay_type "linear", the default there
  warmup_steps: 200                 # lr_scheduler.warmup_steps 200
  decay_steps: 1001                 # torchtitan's last step is one before the end of the fall
  wsd_decay: 800                    # lr_scheduler.decay_type "linear"

zero:
  stage: 3                          # parallelism.fsdp_reshard_after_forward "default", the default there

recompute:
  mode: full                        # activation_checkpoint.mode "full"

parallel:
  tensor: 2                         # parallelism.tensor_parallel_degree 2
  sequence: true                    # parallelism.tensor_parallel_degree 2

checkpoint:
  dir: "./outputs/checkpoint"       # checkpoint.folder "checkpoint", the default there
  every: 100                        # checkpoint.interval 100
  keep: 10                          # checkpoint.keep_latest_k 10, the default there
  async: false                      # checkpoint.async_mode "disabled", the default there

launch:
  timeout: 300                      # comm.init_timeout_seconds 300, the default there

output:
  dir: "./outputs"                  # job.dump_folder "./outputs", the default there
  tensorboard: true                 # metrics.enable_tensorboard true
)");
}

TEST(Torchtitan, KeysBecomeKeys) {
  struct Mapped {
    std::string text;
    std::string key;
    std::string value;
  };
  const std::vector<Mapped> cases{
      {"", "model.layers", "6"},
      {"", "model.ffn", "768"},
      {"", "schedule.warmup_steps", "200"},
      {"", "optimizer.decay", "all"},
      {"", "checkpoint.at_end", "false"},
      {"", "train.eval_steps", "0"},
      {"", "launch.timeout", "300"},
      {"", "recompute.mode", "selective"},
      {"[model]\nflavor = \"70B\"", "model.ffn", "28672"},
      {"[model]\nflavor = \"405B\"", "model.ffn", "53248"},
      {"[optimizer]\nname = \"Adam\"", "optimizer.decoupled", "false"},
      {"[lr_scheduler]\ndecay_ratio = 0.1", "schedule.wsd_decay", "1000"},
      {"[lr_scheduler]\nmin_lr_factor = 0.5", "schedule.min_lr", "4e-04"},
      {"[lr_scheduler]\ndecay_type = \"cosine\"", "schedule.type", "cosine"},
      {"[training]\nmixed_precision_param = \"float32\"", "train.dtype", "fp32"},
      {"[training]\nenable_cpu_offload = true", "offload.parameters", "host"},
      {"", "zero.stage", "3"},
      {"[parallelism]\nfsdp_reshard_after_forward = \"never\"", "zero.stage", "2"},
      {"[parallelism]\ndata_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 8",
       "zero.stage", "0"},
      {"[parallelism]\ndata_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 8",
       "parallel.data", "8"},
      {"[parallelism]\ntensor_parallel_degree = 2", "parallel.sequence", "true"},
      {"[training]\nglobal_batch_size = 64\n[parallelism]\npipeline_parallel_degree = 2\n"
       "pipeline_parallel_schedule = \"Interleaved1F1B\"",
       "parallel.virtual_stages", "2"},
      {"[model]\nflavor = \"8B\"\n[training]\nglobal_batch_size = 64\n[parallelism]\n"
       "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"Interleaved1F1B\"\n"
       "pipeline_parallel_layers_per_stage = 3",
       "parallel.virtual_stages", "3"},
      {"[checkpoint]\nenable = true\nfolder = \"c\"", "checkpoint.dir", "\"./outputs/c\""},
      {"[checkpoint]\nenable = true\ninitial_load_in_hf = true\ninitial_load_path = \"hf\"",
       "model.from", "\"hf\""},
      {"[validation]\nenable = true\nfreq = 50\nsteps = 9", "train.eval_steps", "9"},
      {"[debug]\nseed = 5", "train.seed", "5"},
  };
  for (const Mapped& each : cases) {
    const Migration result = migrate_toml(each.text);
    EXPECT_EQ(problems_of(result), "") << each.text;
    const auto lines = lines_of(result);
    ASSERT_TRUE(lines.contains(each.key)) << each.text << " " << each.key;
    EXPECT_EQ(lines.at(each.key), each.value) << each.text << " " << each.key;
  }
}

TEST(Torchtitan, AnInfiniteNormClipsNothing) {
  const Migration result = migrate_toml("[training]\nmax_norm = inf\n");
  EXPECT_EQ(problems_of(result), "");
  EXPECT_EQ(lines_of(result).at("train.clip"), "0");
  for (const std::string wrong : {"-inf", "nan", "\"inf\""}) {
    EXPECT_NE(problems_of(migrate_toml("[training]\nmax_norm = " + wrong)), "") << wrong;
  }
}

TEST(Torchtitan, AFolderGivesSizesThatNoTableHas) {
  for (const auto& [text, path] : std::vector<std::pair<std::string, std::string>>{
           {"[model]\nflavor = \"8B_flex\"", "model.flavor"},
           {"[model]\nname = \"deepseek_v3\"", "model.name"}}) {
    const Migration result = migrate_torchtitan(text, {.file = "t.toml", .has_model = true});
    EXPECT_EQ(problems_of(result), "");
    EXPECT_FALSE(key_of(result, path).stops);
    EXPECT_EQ(key_of(result, path).note, "model.from: the folder of --model has the sizes");
  }
}

TEST(Torchtitan, AWarmUpBeyondTheStepsIsCutAloud) {
  const Migration result = migrate_toml(
      "[training]\nsteps = 1000\n[lr_scheduler]\nwarmup_steps = 2000\nmin_lr_factor = 0.1\n");
  EXPECT_EQ(problems_of(result), "");
  const auto lines = lines_of(result);
  EXPECT_EQ(lines.at("schedule.warmup_steps"), "1000");
  EXPECT_EQ(lines.at("schedule.type"), "constant");
  EXPECT_FALSE(lines.contains("schedule.min_lr"));
  const MigratedKey warmup = key_of(result, "lr_scheduler.warmup_steps");
  EXPECT_EQ(warmup.kind, KeyClass::kChanged);
  EXPECT_EQ(warmup.note, "schedule.warmup_steps 1000: the run ends before a warm-up of 2000 steps");
  EXPECT_EQ(key_of(result, "lr_scheduler.min_lr_factor").kind, KeyClass::kIgnored);
}

TEST(Torchtitan, ARateThatNeverFallsIsConstantBehindItsWarmUp) {
  const Migration result = migrate_toml(
      "[training]\nsteps = 100\n[lr_scheduler]\nwarmup_steps = 10\ndecay_ratio = 0.0\n"
      "min_lr_factor = 0.1\n");
  EXPECT_EQ(problems_of(result), "");
  EXPECT_EQ(lines_of(result).at("schedule.type"), "constant");
  EXPECT_EQ(key_of(result, "lr_scheduler.decay_ratio").kind, KeyClass::kIgnored);
  EXPECT_EQ(key_of(result, "lr_scheduler.min_lr_factor").note,
            "no effect where the rate never falls");
}

TEST(Torchtitan, ValuesWithoutCounterpartStop) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[model]\nconverters = [\"float8\"]", "model.converters"},
      {"[model]\nname = \"deepseek_v3\"", "model.name"},
      {"[model]\nflavor = \"8B_flex\"", "model.flavor"},
      {"[model]\nflavor = \"8B_flex\"\n[parallelism]\npipeline_parallel_degree = 2\n"
       "pipeline_parallel_schedule = \"Interleaved1F1B\"\npipeline_parallel_layers_per_stage = 3",
       "parallelism.pipeline_parallel_layers_per_stage"},
      {"[training]\ndtype = \"bfloat16\"", "training.dtype"},
      {"[parallelism]\ncontext_parallel_degree = 2", "parallelism.context_parallel_degree"},
      {"[parallelism]\ndata_parallel_replicate_degree = 2",
       "parallelism.data_parallel_replicate_degree"},
      {"[lr_scheduler]\ndecay_type = \"sqrt\"", "lr_scheduler.decay_type"},
      {"[activation_checkpoint]\nmode = \"memory_budget\"", "activation_checkpoint.mode"},
      {"[checkpoint]\nenable = true\ninitial_load_path = \"dcp\"", "checkpoint.initial_load_path"},
      {"[fault_tolerance]\nenable = true", "fault_tolerance.enable"},
  };
  for (const auto& [text, path] : cases) {
    EXPECT_TRUE(key_of(migrate_toml(text), path).stops) << text;
  }
  EXPECT_FALSE(key_of(migrate_toml("[parallelism]\ncontext_parallel_degree = 1"),
                      "parallelism.context_parallel_degree")
                   .stops);
}

TEST(Torchtitan, WhatGoesWithRefusedConvertersIsNotIgnoredByTorchtitan) {
  const std::string recipe = "[quantize.linear.float8]\nrecipe_name = \"rowwise\"\n";
  const std::string path = "quantize.linear.float8.recipe_name";
  EXPECT_EQ(key_of(migrate_toml(recipe), path).kind, KeyClass::kIgnored);
  const Migration result = migrate_toml("[model]\nconverters = [\"float8\"]\n" + recipe);
  EXPECT_EQ(key_of(result, path).kind, KeyClass::kNotNeeded);
  EXPECT_EQ(key_of(result, path).note, "belongs to model.converters, which stops the migration");
  EXPECT_EQ(key_of(result, "model.converters").note,
            "train.matmul: fp8 takes the place of float8; there is no MX format");
}

TEST(Torchtitan, KeysOfTheTableAreThoseOfTheSource) {
  std::set<std::string_view> paths;
  for (const TorchtitanKey& key : torchtitan_keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.note.empty()) << key.path;
    EXPECT_EQ(key.note.find("sluice export"), std::string_view::npos) << key.path;
  }
  EXPECT_EQ(paths.size(), 149U + 6U);
  const Migration result = migrate_toml("");
  EXPECT_EQ(result.effective.size(), 155U);
  EXPECT_EQ(result.effective.at("optimizer.beta2"), "0.95");
}

TEST(Torchtitan, RefusesWithTheWholeMessage) {
  struct Refused {
    std::string text;
    std::string message;
    int world = 0;
  };
  const std::vector<Refused> cases{
      {"[training]\nsteps = 5\nsteps = 6",
       "t.toml:3:9: no TOML: Error while parsing key-value pair: cannot redefine existing integer "
       "'steps'; correct the file"},
      {"[training\nsteps = 5",
       "t.toml:1:10: no TOML: Error while parsing table header: expected ']', saw '\\n'; correct "
       "the file"},
      {"[training]\nbatch = 5",
       "t.toml:2:1: training.batch: torchtitan has no such key and stops; did you mean "
       "training.dataset?"},
      {"[training]\ncompile = true\nbatch_size = 4",
       "t.toml:2:1: training.compile: torchtitan has renamed the key; write compile.enable\n"
       "t.toml:3:1: training.batch_size: torchtitan has renamed the key; write "
       "training.local_batch_size"},
      {"[wibble]\nx = 5",
       "t.toml:1:2: wibble: torchtitan has no such key and stops; leave the key out"},
      {"[trainig]\nsteps = 5",
       "t.toml:1:2: trainig: torchtitan has no such key and stops; did you mean training?"},
      {"training = 3",
       "t.toml:1:1: training: the name is a section's; write [training] and its keys"},
      {"[training]\nsteps = \"5\"",
       "t.toml:2:1: training.steps: found text, expected a whole number; correct the value"},
      {"[training]\nsteps = 5.5",
       "t.toml:2:1: training.steps: found a number, expected a whole number; correct the value"},
      {"[optimizer]\nlr = true",
       "t.toml:2:1: optimizer.lr: found true or false, expected a number; correct the value"},
      {"[activation_checkpoint]\nmode = \"some\"",
       "t.toml:2:1: activation_checkpoint.mode: found 'some', expected one of selective, full, "
       "memory_budget, none; write one of these values"},
      {"[optimizer]\nname = \"SGD\"",
       "t.toml:2:1: optimizer.name: found 'SGD', torchtitan has Adam and AdamW; write one of both"},
      {"[lr_scheduler]\ntotal_steps = 10",
       "t.toml:2:1: lr_scheduler.total_steps: fewer than training.steps: the learning rate falls "
       "below 0 there; give at least 10000"},
      {"[training]\nglobal_batch_size = 20",
       "t.toml:2:1: training.global_batch_size: 20 samples are no multiple of local batch 8 x 2 "
       "data-parallel ranks, torchtitan stops; change one of the three",
       2},
      {"[parallelism]\npipeline_parallel_degree = 2",
       "training.global_batch_size: --world RANKS, or --set train.global_batch=SAMPLES"},
      {"[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = "
       "\"Interleaved1F1B\"\npipeline_parallel_layers_per_stage = 2",
       "t.toml:4:1: parallelism.pipeline_parallel_layers_per_stage: 8 layers (embedding and head "
       "counted) in pieces of 2 make 4 pieces; torchtitan needs the same number, two or more, for "
       "each of 4 ranks; change the number",
       4},
      {"[optimizer]\nlr = -1.0",
       "t.toml:2:1: optimizer.lr: Sluice has no such value: optimizer.lr: '-1' is out of range, "
       "expected a number >= 0"},
  };
  for (const Refused& each : cases) {
    EXPECT_EQ(problems_of(migrate_toml(each.text, each.world)), each.message) << each.text;
  }
}

}  // namespace
}  // namespace sluice::migrate
