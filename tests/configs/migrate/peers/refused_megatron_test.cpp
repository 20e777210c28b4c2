// Command lines that Megatron-LM or Sluice refuses, each with the complete message.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/migrate/peers/megatron.hpp"

namespace sluice::migrate {
namespace {

const std::string kModel =
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
    "--max-position-embeddings 1024 --micro-batch-size 4 --vocab-size 50257 ";
const std::string kWhole = kModel + "--train-iters 1000 --lr 1e-4 ";

struct Refused {
  std::string arguments;
  std::string message;  // all of it, after "--megatron: "
  int world = 0;
};

const std::vector<Refused>& refused() {
  static const std::vector<Refused> cases{
      {kWhole + "--num-layer 3",
       "--megatron: --num-layer: no argument of Megatron-LM; did you mean --num-layers?"},
      {kWhole + "--wibble 3",
       "--megatron: --wibble: no argument of Megatron-LM; leave the argument out, or migrate "
       "without it and set the key of Sluice with --set"},
      {kWhole + "--deepspeed --deepspeed_config ds.json --zero-stage 2",
       "--megatron: --deepspeed: an argument of Megatron-DeepSpeed: give the file of "
       "--deepspeed_config too, `sluice migrate ds_config.json --megatron ...`\n"
       "--megatron: --deepspeed_config: an argument of Megatron-DeepSpeed: give the file of "
       "--deepspeed_config too, `sluice migrate ds_config.json --megatron ...`\n"
       "--megatron: --zero-stage: an argument of Megatron-DeepSpeed: give the file of "
       "--deepspeed_config too, `sluice migrate ds_config.json --megatron ...`"},
      {kWhole + "--partition-activations",
       "--megatron: --partition-activations: an argument of Megatron-DeepSpeed that is not read; "
       "leave the argument out, and give the key of Sluice with --set"},
      {kWhole + "--train-iters 1e6",
       "--megatron: --train-iters: found '1e6', Megatron-LM expects a whole number; write digits "
       "alone"},
      {kWhole + "--train-iters 1__0",
       "--megatron: --train-iters: found '1__0', Megatron-LM expects a whole number; write digits "
       "alone"},
      {kWhole + "--clip-grad much",
       "--megatron: --clip-grad: found 'much', Megatron-LM expects a number; write a number"},
      {kWhole + "--lr-decay-style poly",
       "--megatron: --lr-decay-style: found 'poly', expected one of constant, linear, cosine, "
       "inverse-square-root, WSD; write one of these values"},
      {kWhole + "--swiglu=true", "--megatron: --swiglu: a flag takes no value; leave out '=true'"},
      {kWhole + "--min-lr",
       "--megatron: --min-lr: a value is missing; write a value after the argument"},
      {kWhole + "--rampup-batch-size 16 16",
       "--megatron: --rampup-batch-size: three values are expected; write three values after the "
       "argument"},
      {kWhole + "--recompute-modules",
       "--megatron: --recompute-modules: a value is missing; write a value after the argument"},
      {kWhole + "extra",
       "--megatron: extra: no value is expected here; write the argument's name before the value"},
      {kWhole + "--min-lr -1e-5",
       "--megatron: --min-lr: a value is missing; write a value after the argument\n--megatron: "
       "-1e-5: no argument of Megatron-LM; leave the argument out, or migrate without it and set "
       "the key of Sluice with --set"},
      {kWhole + "--min-lr 1",
       "--megatron: --min-lr: greater than --lr, Megatron-LM stops; give a smaller one"},
      {kModel + "--lr 1e-4",
       "--megatron: --train-iters: Megatron-LM needs --train-iters or --train-samples; give one of "
       "both"},
      {kModel + "--train-iters 10",
       "--megatron: --lr: Megatron-LM needs a learning rate; give --lr"},
      {kModel + "--lr 1 --train-iters 10 --train-samples 40",
       "--megatron: --train-samples: --train-iters is given too, Megatron-LM stops; leave one of "
       "both out"},
      {kModel + "--lr 1 --train-samples 40",
       "--train-samples: --world RANKS, or --set train.steps=STEPS"},
      {kWhole + "--vocab-size 0",
       "--megatron: --vocab-size: Megatron-LM needs a number above 0; give one"},
      {"--lr 1e-4",
       "--megatron: --num-layers: Megatron-LM needs a number above 0; give the "
       "argument\n--megatron: --hidden-size: Megatron-LM needs a number above 0; give the "
       "argument\n--megatron: --num-attention-heads: Megatron-LM needs a number above 0; give the "
       "argument\n--megatron: --seq-length: Megatron-LM needs a number above 0; give the "
       "argument\n--megatron: --max-position-embeddings: Megatron-LM needs the argument; give a "
       "number\n--megatron: --micro-batch-size: Megatron-LM needs a number above 0; give the "
       "argument\n--vocab-size: --set model.vocab=ROWS, the padded size that Megatron-LM prints at "
       "the start"},
      {kWhole + "--max-position-embeddings 512",
       "--megatron: --max-position-embeddings: fewer positions than --seq-length, Megatron-LM "
       "stops; give at least 1024"},
      {kWhole + "--hidden-size 1000",
       "--megatron: --hidden-size: no multiple of --num-attention-heads, Megatron-LM stops; give "
       "--kv-channels"},
      {kWhole + "--position-embedding-type rope",
       "--megatron: --position-embedding-type: rotary positions with LayerNorm: no architecture of "
       "Sluice; with rotary positions a llama, mistral or qwen2 has --normalization RMSNorm, "
       "--swiglu and --disable-bias-linear\n--megatron: --position-embedding-type: rotary "
       "positions without SwiGLU: no architecture of Sluice; with rotary positions a llama, "
       "mistral or qwen2 has --normalization RMSNorm, --swiglu and "
       "--disable-bias-linear\n--megatron: --position-embedding-type: rotary positions with "
       "biases: no architecture of Sluice; with rotary positions a llama, mistral or qwen2 has "
       "--normalization RMSNorm, --swiglu and --disable-bias-linear"},
      {kWhole + "--position-embedding-type yarn",
       "--megatron: --position-embedding-type: yarn positions: Sluice has learned_absolute (gpt2) "
       "and rope (llama, mistral, qwen2); train another model"},
      {kWhole + "--swiglu",
       "--megatron: --swiglu: learned positions with SwiGLU: no architecture of Sluice; with "
       "learned positions a gpt2 has LayerNorm, gelu, biases and as many key as query heads"},
      {kWhole + "--group-query-attention --num-query-groups 4",
       "--megatron: --group-query-attention: learned positions with grouped queries: no "
       "architecture of Sluice; with learned positions a gpt2 has LayerNorm, gelu, biases and as "
       "many key as query heads"},
      {kWhole + "--bf16 --fp16",
       "--megatron: --bf16: --fp16 is given too, Megatron-LM stops; leave one of both out"},
      {kWhole + "--global-batch-size 10",
       "--megatron: --global-batch-size: 10 samples are no multiple of micro batch 4 x 2 "
       "data-parallel ranks, Megatron-LM stops; change one of the three",
       2},
      {kWhole + "--tensor-model-parallel-size 4",
       "--megatron: --tensor-model-parallel-size: 6 ranks are no multiple of the 4 ranks of a "
       "replica, Megatron-LM stops; change the number of ranks",
       6},
      {kWhole + "--pipeline-model-parallel-size 5",
       "--megatron: --pipeline-model-parallel-size: 24 layers are no multiple of 5 stages, "
       "Megatron-LM stops; change one of both"},
      {kWhole + "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4",
       "--megatron: --num-layers-per-virtual-pipeline-stage: 24 layers of 4 stages are no "
       "multiple, Megatron-LM stops; give another number"},
      {kWhole + "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 4",
       "--megatron: --decoder-first-pipeline-num-layers: 20 layers remain for 3 stages, no "
       "multiple, Megatron-LM stops; change one of both"},
      {kWhole + "--lr-warmup-iters 10 --lr-warmup-fraction 0.1",
       "--megatron: --lr-warmup-fraction: not with --lr-warmup-iters, Megatron-LM stops; leave one "
       "of both out"},
      {kWhole + "--lr-warmup-iters 1000",
       "--megatron: --lr-warmup-iters: the warm-up has 1000 of 1000 steps, Megatron-LM stops; give "
       "fewer steps"},
      {kWhole + "--lr-warmup-samples 10",
       "--megatron: --lr-warmup-samples: not with --train-iters, Megatron-LM stops or ignores the "
       "value; give the value in the unit of --train-iters"},
      {kWhole + "--lr-decay-style WSD --lr-wsd-decay-style linear",
       "--megatron: --lr-decay-style: WSD needs --lr-wsd-decay-iters, Megatron-LM stops; give "
       "--lr-wsd-decay-iters"},
      {kWhole + "--recompute-granularity full",
       "--megatron: --recompute-granularity: full needs --recompute-method, Megatron-LM stops; "
       "give uniform or block"},
      {kWhole + "--recompute-activations --recompute-method uniform",
       "--megatron: --recompute-method: selective has no method, Megatron-LM stops; leave the "
       "argument out"},
      {kWhole + "--optimizer-cpu-offload",
       "--megatron: --optimizer-cpu-offload: needs --use-precision-aware-optimizer, Megatron-LM "
       "stops; give both"},
      {kWhole + "--data-path a --split x",
       "--megatron: --split: found 'x', expected one to three numbers with commas; write "
       "--split 969,30,1"},
      {kWhole + "--data-path a --split 1,1,1,1",
       "--megatron: --split: found '1,1,1,1', expected one to three numbers with commas; write "
       "--split 969,30,1"},
      {kWhole + "--data-path a --train-data-path b",
       "--megatron: --data-path: --train-data-path, --valid-data-path or --test-data-path is given "
       "too, Megatron-LM stops; give one kind"},
      {kWhole + "--save ck",
       "--megatron: --save: needs --save-interval, Megatron-LM stops; give both"},
      {kWhole + "--batch-size 4",
       "--megatron: --batch-size: Megatron-LM has removed the argument and stops; give "
       "--micro-batch-size in its place"},
      {kWhole + "--checkpoint-activations",
       "--megatron: --checkpoint-activations: Megatron-LM has removed the argument and stops; give "
       "--recompute-granularity in its place"},
      {kWhole + "--adam-beta2 1.5",
       "--megatron: --adam-beta2: found 1.5, expected a number in [0, 1); give one"},
      {kWhole + "--tensor-model-parallel-size 0",
       "--megatron: --tensor-model-parallel-size: Megatron-LM needs a number above 0; give one"},
      {kWhole + "--window-size 3",
       "--megatron: --window-size: learned positions with a window: no architecture of Sluice; "
       "with learned positions a gpt2 has LayerNorm, gelu, biases and as many key as query heads"},
      {"torchrun --nnodes 2 --nproc_per_node 4 pretrain_gpt.py " + kWhole,
       "--nnodes: --set launch.hostfile=FILE, one line for each of the 2 hosts"},
      {"torchrun --nproc_per_node x pretrain_gpt.py " + kWhole,
       "--megatron: --nproc_per_node: found 'x', expected a number above 0; write one"},
      {"torchrun --nnodes 1:4 pretrain_gpt.py " + kWhole,
       "--megatron: --nnodes: found '1:4', expected a number of hosts that does not change; write "
       "one"},
      {"torchrun --nproc_per_node 8 pretrain_gpt.py " + kWhole,
       "--megatron: the job starts 8 ranks, and --world gives 16; leave one of the two out", 16},
      {"python pretrain_bert.py " + kWhole,
       "--megatron: pretrain_bert.py trains no model of Sluice; migrate a command of "
       "pretrain_gpt.py"},
      {"torchrun --nproc_per_node 8",
       "--megatron: no script in the command; give the command with its .py file, or the arguments "
       "of the script alone"},
      {"", "--megatron: no arguments; give Megatron-LM's command line"},
      {kWhole + "--lr $LR",
       "--megatron:1:184: the variable $LR has no value here; write the value instead of the "
       "variable"},
      {kWhole + "| tee log",
       "--megatron:1:179: the pipe | is no argument; leave out the pipe and what follows"},
  };
  return cases;
}

TEST(Megatron, RefusesWithTheWholeMessage) {
  for (const Refused& each : refused()) {
    const Migration result = migrate_megatron(each.arguments, {.world = each.world});
    std::string text;
    for (const MigrationError& error : result.errors) {
      text += (text.empty() ? "" : "\n") + error.text;
    }
    for (const MissingValue& value : result.missing) {
      text += (text.empty() ? "" : "\n") + value.path + ": " + value.give;
    }
    EXPECT_EQ(text, each.message) << each.arguments;
  }
}

}  // namespace
}  // namespace sluice::migrate
