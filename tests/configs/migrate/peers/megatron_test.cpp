#include "configs/migrate/peers/megatron.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "configs/migrate/write_yaml.hpp"
#include "tests/configs/migrate/peers/peer_result.hpp"

namespace sluice::migrate {
namespace {

// The fewest arguments with which Megatron-LM starts.
const std::string kGpt =
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
    "--max-position-embeddings 1024 --micro-batch-size 4 --train-iters 1000 --lr 1e-4 "
    "--vocab-size 50257 ";
const std::string kLlama =
    kGpt + "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear ";

Migration migrate_gpt(const std::string& arguments, int world = 0) {
  Migration result = migrate_megatron(arguments, {.world = world});
  EXPECT_EQ(problems_of(result), "") << arguments;
  return result;
}

TEST(Megatron, GradientsThatAreReducedInBf16AreSentSo) {
  const std::string kRun = kGpt + "--bf16 --global-batch-size 32 --train-iters 10 ";
  for (const bool narrow : {true, false}) {
    const Migration result = migrate_gpt(kRun + (narrow ? "--grad-reduce-in-bf16" : ""), 8);
    EXPECT_EQ(write_yaml(result).find("reduce_dtype: bf16 ") != std::string::npos, narrow);
  }
}

TEST(Megatron, ACommandBecomesAConfiguration) {
  Migration result = migrate_gpt(
      "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node=8 pretrain_gpt.py " + kGpt +
      "--global-batch-size 32 --lr-decay-style cosine --min-lr 1.0e-5 --lr-warmup-fraction .01 "
      "--fp16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
      "--sequence-parallel --use-distributed-optimizer --recompute-activations "
      "--data-path my-gpt2_text_document --save ck --save-interval 500");
  check_result(result);
  EXPECT_EQ(problems_of(result), "");
  EXPECT_EQ(write_yaml(result), R"(# Carried over from --megatron (Megatron-LM) by `sluice migrate`.

model:
  layers: 24                        # --num-layers 24
  hidden: 1024                      # --hidden-size 1024
  heads: 16                         # --num-attention-heads 16
  vocab: 50432                      # --vocab-size 50257
  dropout: 0.1                      # --attention-dropout 0.1, the default there
  norm_eps: 1e-05                   # --norm-epsilon 1e-05, the default there

data:
  train: ["my-gpt2_text_document"]  # --data-path ["my-gpt2_text_document"]
  split: [969, 30, 1]               # --split 969, 30, 1, the default there

train:
  micro_batch: 4                    # --micro-batch-size 4
  global_batch: 32                  # --global-batch-size 32
  dtype: fp16                       # --fp16 true
  eval_steps: 100                   # --eval-iters 100, the default there
  log_every: 100                    # --log-interval 100, the default there

optimizer:
  lr: 1e-04                         # --lr 1e-4
  betas: [0.9, 0.999]               # --adam-beta2 0.999, the default there
  weight_decay: 0.01                # --weight-decay 0.01, the default there

schedule:
  warmup_steps: 10                  # --lr-warmup-fraction 0.01
  min_lr: 1e-05                     # --min-lr 1.0e-5
  counting: from_zero               # Megatron-LM's first step has the learning rate of 0 samples

recompute:
  mode: selective                   # --recompute-activations true

parallel:
  tensor: 2                         # --tensor-model-parallel-size 2
  sequence: true                    # --sequence-parallel true
  pipeline: 2                       # --pipeline-model-parallel-size 2
  stage_layers: [12, 12]            # --pipeline-model-parallel-size 2

loss_scale:
  initial: 4294967296               # --initial-loss-scale 4294967296, the default there

checkpoint:
  dir: "ck"                         # --save "ck"
  every: 500                        # --save-interval 500
  keep: 0                           # Megatron-LM keeps every checkpoint

launch:
  nproc: 8                          # --nproc_per_node 8
)");
}

// One argument or two, the key of the result, its value.
struct Mapped {
  std::string arguments;
  std::string key;
  std::string value;
};

TEST(Megatron, ArgumentsOfAGptBecomeKeys) {
  const std::vector<Mapped> cases{
      {"", "model.type", "gpt2"},
      {"", "model.tie_embeddings", "true"},
      {"--untie-embeddings-and-output-weights", "model.tie_embeddings", "false"},
      {"", "model.vocab", "50304"},
      {"--make-vocab-size-divisible-by 1000", "model.vocab", "51000"},
      {"--no-pad-vocab-size", "model.vocab", "50257"},
      {"--padded-vocab-size 51200", "model.vocab", "51200"},
      {"--ffn-hidden-size 3000", "model.ffn", "3000"},
      {"--init-method-std 0.01", "model.init_std", "0.01"},
      {"--hidden-dropout 0 --attention-dropout 0.0", "model.dropout", "0"},
      {"", "schedule.type", "linear"},
      {"--lr-decay-style WSD --lr-wsd-decay-style linear --lr-wsd-decay-iters 100",
       "schedule.wsd_decay", "100"},
      {"--lr-warmup-iters 50 --lr-warmup-init 1e-6", "schedule.warmup_min_lr", "1e-06"},
      {"--lr-decay-iters 800", "schedule.decay_steps", "800"},
      {"--exit-interval 300", "train.steps", "300"},
      {"--exit-interval 3_00", "train.steps", "300"},
      {"--lr 1_0.2_5e-4", "optimizer.lr", "0.001025"},
      {"--exit-interval 300", "schedule.decay_steps", "1000"},
      {"", "train.dtype", "fp32"},
      {"--bf16", "train.dtype", "bf16"},
      {"--fp16 --loss-scale 1024", "loss_scale.static", "1024"},
      {"--fp16 --loss-scale-window 500", "loss_scale.window", "500"},
      {"--optimizer lion", "optimizer.betas", "[0.95, 0.98]"},
      {"--optimizer sgd", "optimizer.momentum", "0.9"},
      {"--clip-grad 0", "train.clip", "0"},
      {"", "zero.stage", "0"},
      {"--use-distributed-optimizer", "zero.stage", "1"},
      {"--use-megatron-fsdp", "zero.stage", "3"},
      {"--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "zero.stage", "2"},
      {"--use-torch-fsdp2", "zero.stage", "3"},
      {"--ddp-bucket-size 1000", "zero.bucket_bytes", "4000"},
      {"--recompute-granularity full --recompute-method uniform", "recompute.mode", "full"},
      {"--optimizer-cpu-offload --use-precision-aware-optimizer --optimizer-offload-fraction 0.75",
       "offload.device_fraction", "0.25"},
      {"--cpu-offloading-num-layers 3", "offload.activations", "host"},
      {"--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
       "parallel.virtual_stages", "3"},
      {"--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3",
       "parallel.schedule", "interleaved"},
      {"--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3 "
       "--decoder-last-pipeline-num-layers 5",
       "parallel.stage_layers", "[3, 8, 8, 5]"},
      {"--data-path a b", "data.train", "[\"a\", \"b\"]"},
      {"--data-path 1.0 a", "data.train", "[\"a\"]"},
      {"--data-path .3 a 0.7 b", "data.blend",
       "[{path: \"a\", weight: 0.3}, {path: \"b\", weight: 0.7}]"},
      {"--data-path a --split 98,2,0", "data.split", "[98, 2]"},
      {"--data-path a --split 98/1/1", "data.split", "[98, 1, 1]"},
      {"--data-path a --split \"'99,1,0'\"", "data.split", "[99, 1]"},
      {"--data-path a --split '98, 1.5; .5'", "data.split", "[98, 1.5, 0.5]"},
      {"--train-data-path a --valid-data-path v", "data.valid", "[\"v\"]"},
      {"--train-data-path a --valid-data-path v --test-data-path t u", "data.test",
       "[\"t\", \"u\"]"},
      {"--train-data-path 1 a 2 b", "data.blend",
       "[{path: \"a\", weight: 1}, {path: \"b\", weight: 2}]"},
      {"--exit-duration-in-mins 30", "checkpoint.time_limit", "1800"},
      {"", "checkpoint.at_end", "false"},
      {"", "launch.timeout", "600"},
      {"--seed 7 --seed 8", "train.seed", "8"},
      {"--tensorboard-dir tb", "output.tensorboard", "true"},
  };
  for (const Mapped& each : cases) {
    const auto lines = lines_of(migrate_gpt(kGpt + each.arguments));
    ASSERT_TRUE(lines.contains(each.key)) << each.arguments << " " << each.key;
    EXPECT_EQ(lines.at(each.key), each.value) << each.arguments << " " << each.key;
  }
}

// The table's version counts --vocab-size; versions before core 0.18 count one token more.
TEST(Megatron, ANullTokenizerOfAnOlderVersionHasAnotherTable) {
  const auto notes = [](const std::string& vocab, const std::string& tokenizer) {
    const Migration result =
        migrate_gpt(kGpt + "--vocab-size " + vocab + " --tokenizer-type " + tokenizer);
    EXPECT_EQ(lines_of(result).at("model.vocab"), "128256");
    std::string found;
    for (const std::string& note : result.notes) {
      if (note.find("NullTokenizer") != std::string::npos) found += note;
    }
    return found;
  };
  EXPECT_EQ(notes("128256", "NullTokenizer"),
            "NullTokenizer has 128256 tokens since Megatron-LM core 0.18, and one more before: "
            "give --set model.vocab=128384 for an older version");
  EXPECT_EQ(notes("128255", "NullTokenizer"), "");
  EXPECT_EQ(notes("128256", "HuggingFaceTokenizer"), "");
}

TEST(Megatron, RotaryModelsAreLlamaMistralOrQwen2) {
  const std::vector<Mapped> cases{
      {"", "model.type", "llama"},
      {"", "model.ffn", "2688"},
      {"", "model.tie_embeddings", "true"},
      {"--add-qkv-bias", "model.type", "qwen2"},
      {"--add-qkv-bias", "model.norm_eps", "1e-05"},
      {"--window-size 4095,0", "model.type", "mistral"},
      {"--window-size (4095,0)", "model.sliding_window", "4096"},
      {"--group-query-attention --num-query-groups 4", "model.kv_heads", "4"},
      {"--group-query-attention", "model.kv_heads", "1"},
      {"--kv-channels 128", "model.head_dim", "128"},
      {"--rotary-base 500000", "model.rope_theta", "500000"},
      {"--use-rope-scaling --rope-scaling-factor 32", "model.rope_factor", "32"},
      {"--use-rope-scaling", "model.rope_scaling", "llama3"},
  };
  for (const Mapped& each : cases) {
    std::string arguments = each.arguments;
    if (arguments.find('(') != std::string::npos) arguments = "--window-size '(4095,0)'";
    const auto lines = lines_of(migrate_gpt(kLlama + arguments));
    ASSERT_TRUE(lines.contains(each.key)) << each.arguments << " " << each.key;
    EXPECT_EQ(lines.at(each.key), each.value) << each.arguments << " " << each.key;
  }
}

TEST(Megatron, SamplesBecomeStepsOfTheGlobalBatch) {
  std::string arguments = kGpt;
  arguments.replace(arguments.find("--train-iters 1000"), 18, "--train-samples 1005");
  const auto lines = lines_of(migrate_gpt(arguments + "--lr-warmup-samples 100", 2));
  EXPECT_EQ(lines.at("train.global_batch"), "8");
  EXPECT_EQ(lines.at("train.steps"), "125");
  EXPECT_EQ(lines.at("schedule.warmup_steps"), "13");
}

TEST(Megatron, ClassesAndNotesSayWhatDiffers) {
  const Migration result = migrate_gpt(
      kGpt +
      "--max-position-embeddings 2048 --use-flash-attn --moe-router-topk 4 --onnx-safe x "
      "--no-async-tensor-model-parallel-allreduce --recompute-granularity full "
      "--recompute-method block --recompute-num-layers 3");
  EXPECT_EQ(key_of(result, "--max-position-embeddings").note,
            "the position table has 2048 rows there and model.seq = 1024 rows here; no other row "
            "is used in training");
  EXPECT_EQ(key_of(result, "--use-flash-attn").kind, KeyClass::kNotNeeded);
  EXPECT_EQ(key_of(result, "--moe-router-topk").kind, KeyClass::kIgnored);
  EXPECT_EQ(key_of(result, "--moe-router-topk").note, "no effect without --num-experts");
  EXPECT_EQ(key_of(result, "--no-async-tensor-model-parallel-allreduce").kind, KeyClass::kRemoved);
  EXPECT_EQ(key_of(result, "--recompute-num-layers").note,
            "3 layers of each stage are computed again there, all layers here");
  EXPECT_EQ(result.effective.at("--adam-beta2"), "0.999");
  EXPECT_EQ(result.effective.at("--data-parallel-sharding-strategy"), "\"optim_grads_params\"");
}

TEST(Megatron, ValuesWithoutCounterpartStopUnlessTheyAreDefaults) {
  struct Case {
    std::string arguments;
    std::string path;
    bool stops;
  };
  const std::vector<Case> cases{
      {"--context-parallel-size 2", "--context-parallel-size", true},
      {"--context-parallel-size 1", "--context-parallel-size", false},
      {"--rotary-percent 1", "--rotary-percent", false},
      {"--num-experts 8", "--num-experts", true},
      {"--rampup-batch-size 16 16 1000", "--rampup-batch-size", true},
      {"--lr-decay-style inverse-square-root", "--lr-decay-style", true},
      {"--lr-decay-style WSD --lr-wsd-decay-iters 9", "--lr-wsd-decay-style", true},
      {"--attention-dropout 0", "--attention-dropout", true},
      {"--optimizer muon", "--optimizer", true},
      {"--fp8-format hybrid", "--fp8-format", true},
      {"--no-bias-gelu-fusion", "--no-bias-gelu-fusion", true},
      {"--data-path 0.3 a 0.7 b", "--data-path", false},
      {"--train-data-path c --valid-data-path 0.3 a 0.7 b", "--valid-data-path", true},
      {"--load other", "--load", true},
      {"--dataloader-type cyclic", "--dataloader-type", true},
      {"--dataloader-type single", "--dataloader-type", false},
      {"--exp-avg-dtype bf16 --use-precision-aware-optimizer", "--exp-avg-dtype", true},
      {"--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --use-precision-aware-optimizer",
       "--exp-avg-dtype", false},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(key_of(migrate_gpt(kGpt + each.arguments), each.path).stops, each.stops)
        << each.arguments;
  }
}

TEST(Megatron, WhatGoesWithARefusedArgumentIsNotIgnoredByMegatron) {
  const auto key = [](const std::string& arguments, const std::string& path) {
    return key_of(migrate_gpt(kGpt + arguments), path);
  };
  EXPECT_EQ(key("--fp8-margin 1", "--fp8-margin").kind, KeyClass::kIgnored);
  EXPECT_EQ(key("--fp8-margin 1 --fp4-format e2m1", "--fp8-margin").kind, KeyClass::kNotNeeded);
  const MigratedKey topk = key("--moe-router-topk 2 --num-experts 8", "--moe-router-topk");
  EXPECT_EQ(topk.kind, KeyClass::kNotNeeded);
  EXPECT_EQ(topk.note, "belongs to --num-experts, which stops the migration");
}

// "nothing is lost" would be untrue of these arguments, also beside a mistake.
TEST(Megatron, ARefusedArgumentStopsBesideAMistake) {
  EXPECT_TRUE(
      key_of(migrate_megatron(kGpt + "--num-experts 8 --train-iters x", {}), "--num-experts")
          .stops);
}

TEST(Megatron, AShellScriptIsNotRun) {
  const Migration result =
      migrate_megatron("#!/bin/bash\nN=$((2*4))\npython pretrain_gpt.py\n", {.file = "run.sh"});
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_EQ(result.notes[0],
            "run.sh: a shell script is not run here; write echo before its torchrun or python, and "
            "give the line that the script prints");
}

// A default of Megatron-LM stops: leaving the argument out is no way out.
TEST(Megatron, ADefaultThatStopsNamesTheArgumentToGive) {
  const auto remedy = [](const std::string& arguments, const std::string& path) {
    Migration result = migrate_gpt(kGpt + arguments);
    const MigratedKey key = key_of(result, path);
    settle_allowed(result, {});
    EXPECT_TRUE(key.stops) << arguments;
    EXPECT_NE(problems_of(result).find("; " + key.remedy + ", or go on"), std::string::npos)
        << problems_of(result);
    return key.remedy;
  };
  EXPECT_EQ(remedy("--lr-decay-style WSD --lr-wsd-decay-iters 9", "--lr-wsd-decay-style"),
            "give --lr-wsd-decay-style linear");
  EXPECT_EQ(remedy("--lr-decay-style WSD --lr-wsd-decay-style linear --lr-wsd-decay-iters 900 "
                   "--lr-warmup-iters 200",
                   "--lr-wsd-decay-iters"),
            "give fewer steps of the fall or of the warm-up");
  EXPECT_EQ(remedy("--hidden-dropout 0", "--attention-dropout"),
            "give --attention-dropout and --hidden-dropout one value");
}

}  // namespace
}  // namespace sluice::migrate
