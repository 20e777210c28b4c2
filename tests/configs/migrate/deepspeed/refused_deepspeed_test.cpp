// Configurations that DeepSpeed refuses, each with the complete message.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_config.hpp"

namespace sluice::migrate {
namespace {

struct Refused {
  std::string name;
  std::string text;     // of c.json
  std::string message;  // all of it
  int world = 0;
};

const std::vector<Refused>& refused() {
  static const std::vector<Refused> cases{
      {"an unknown key of a strict section",
       R"({"train_batch_size": 8, "zero_optimization": {"overlap_com": true}})",
       "c.json:1:47: zero_optimization.overlap_com: no key of zero_optimization, DeepSpeed raises "
       "an error; remove the key; did you mean 'overlap_comm'?"},
      {"an unknown key without a neighbour", R"({"train_batch_size": 8, "fp16": {"wibble": 1}})",
       "c.json:1:34: fp16.wibble: no key of fp16: DeepSpeed raises an error since 0.17.1, older "
       "versions "
       "ignore the key; remove the key, or name the version with --from-version"},
      {"a key that fp16 lost",
       R"({"train_batch_size": 8, "fp16": {"enabled": true, "opt_level": "O2"}})",
       "c.json:1:51: fp16.opt_level: no key of fp16: DeepSpeed raises an error since 0.17.1, older "
       "versions "
       "ignore the key; remove the key, or name the version with --from-version"},
      {"bf16.check_overflow", R"({"train_batch_size": 8, "bf16": {"check_overflow": true}})",
       "c.json:1:34: bf16.check_overflow: no key of bf16: DeepSpeed raises an error since 0.17.1, "
       "older versions ignore the key; remove the key, or name the version with --from-version; "
       "did you mean 'check_grad_overflow'?"},
      {"grad_hooks of the documentation",
       R"({"train_batch_size": 8, "zero_optimization": {"grad_hooks": true}})",
       "c.json:1:47: zero_optimization.grad_hooks: no key of zero_optimization, DeepSpeed raises "
       "an error; remove the key"},
      {"buffer_size of offload_optimizer",
       R"({"train_batch_size": 8, )"
       R"("zero_optimization": {"offload_optimizer": {"buffer_size": 1}}})",
       "c.json:1:69: zero_optimization.offload_optimizer.buffer_size: no key of "
       "zero_optimization.offload_optimizer, DeepSpeed raises an error; remove the key"},
      {"an unknown monitor key", R"({"train_batch_size": 8, "tensorboard": {"enable": true}})",
       "c.json:1:41: tensorboard.enable: no key of tensorboard, DeepSpeed raises an error; remove "
       "the key; did you mean 'enabled'?"},
      {"an unknown key of timers.throughput",
       R"({"train_batch_size": 8, "timers": {"throughput": {"sync": true}}})",
       "c.json:1:51: timers.throughput.sync: no key of timers.throughput, DeepSpeed raises an "
       "error; remove the key"},
      {"an unknown parameter of Adam",
       R"({"train_batch_size": 8, "optimizer": {"type": "Adam", )"
       R"("params": {"learning_rate": 1}}})",
       "c.json:1:66: optimizer.params.learning_rate: no key of optimizer.params, DeepSpeed raises "
       "an error; remove the key"},
      {"an unknown parameter of a scheduler",
       R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", )"
       R"("params": {"total_num_steps": 5}}})",
       "c.json:1:70: scheduler.params.total_num_steps: no key of scheduler.params, DeepSpeed "
       "raises an error; remove the key"},
      {"max_grad_norm",
       R"({"train_batch_size": 8, "optimizer": {"type": "Adam", )"
       R"("params": {"max_grad_norm": 1}}})",
       "c.json:1:66: optimizer.params.max_grad_norm: DeepSpeed takes no max_grad_norm here; write "
       "gradient_clipping at the top level"},
      {"both names of a key",
       R"({"train_batch_size": 8, )"
       R"("zero_optimization": {"stage3_max_live_parameters": 1, "max_live_parameters": 1}})",
       "c.json:1:80: zero_optimization.max_live_parameters: a second name of "
       "zero_optimization.stage3_max_live_parameters, DeepSpeed raises an error for two; remove "
       "one of the two keys"},
      {"a stage above 3", R"({"train_batch_size": 8, "zero_optimization": {"stage": 4}})",
       "c.json:1:47: zero_optimization.stage: 4 is out of range; write a whole number >= 0 and <= "
       "3"},
      {"a stage that is a word",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": "three"}})",
       "c.json:1:47: zero_optimization.stage: found \"three\"; write a whole number >= 0 and <= 3"},
      {"a fraction for a count",
       R"({"train_batch_size": 8, "zero_optimization": {"reduce_bucket_size": 1.5}})",
       "c.json:1:47: zero_optimization.reduce_bucket_size: found 1.5; write a whole number >= 1"},
      {"a bucket of zero elements",
       R"({"train_batch_size": 8, "zero_optimization": {"reduce_bucket_size": 0}})",
       "c.json:1:47: zero_optimization.reduce_bucket_size: 0 is out of range; write a whole number "
       ">= 1; DeepSpeed before 0.19.7 takes the value, name the version with --from-version"},
      {"a count with an exponent in quotes",
       R"({"train_batch_size": 8, "zero_optimization": {"sub_group_size": "1e9"}})",
       "c.json:1:47: zero_optimization.sub_group_size: found \"1e9\"; write a whole number >= 0"},
      {"null for a flag", R"({"train_batch_size": 8, "fp16": {"enabled": null}})",
       "c.json:1:34: fp16.enabled: found null; write true or false"},
      {"a word for a flag", R"({"train_batch_size": 8, "bf16": {"enabled": "maybe"}})",
       "c.json:1:34: bf16.enabled: found \"maybe\"; write true or false"},
      {"2 for a flag",
       R"({"train_batch_size": 8, "zero_optimization": {"contiguous_gradients": 2}})",
       "c.json:1:47: zero_optimization.contiguous_gradients: found 2; write true or false"},
      {"True for a flag",
       R"({"train_batch_size": 8,
"bf16": {
"enabled": True,
}})",
       "c.json:3:1: bf16.enabled: found \"True,\"; write true or false"},
      {"a device in capitals",
       R"({"train_batch_size": 8, )"
       R"("zero_optimization": {"offload_param": {"device": "CPU"}}})",
       "c.json:1:65: zero_optimization.offload_param.device: found \"CPU\"; write one of none, "
       "cpu, nvme"},
      {"an unknown device",
       R"({"train_batch_size": 8, )"
       R"("zero_optimization": {"offload_optimizer": {"device": "disk"}}})",
       "c.json:1:69: zero_optimization.offload_optimizer.device: found \"disk\"; write one of "
       "none, cpu, nvme"},
      {"a number for a path",
       R"({"train_batch_size": 8, )"
       R"("zero_optimization": {"offload_param": {"nvme_path": 5}}})",
       "c.json:1:65: zero_optimization.offload_param.nvme_path: found 5; write text, or null"},
      {"a ratio above 1",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, )"
       R"("offload_optimizer": {"ratio": 1.5}}})",
       "c.json:1:81: zero_optimization.offload_optimizer.ratio: 1.5 is out of range; write a "
       "number >= 0 and <= 1"},
      {"a ratio on stage 2",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, )"
       R"("offload_optimizer": {"ratio": 0.5}}})",
       "c.json:1:81: zero_optimization.offload_optimizer.ratio: below 1 needs ZeRO stage 3; write "
       "1.0, or stage 3"},
      {"nvme without a path",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, )"
       R"("offload_optimizer": {"device": "nvme"}}})",
       "c.json:1:81: zero_optimization.offload_optimizer.device: nvme needs a directory; write "
       "nvme_path"},
      {"a list for a section", R"({"train_batch_size": 8, "fp16": [true]})",
       "c.json:1:25: fp16: found a list; write an object { } of keys"},
      {"a flag for a section", R"({"train_batch_size": 8, "fp16": true})",
       "c.json:1:25: fp16: found true or false; write an object { } of keys"},
      {"null for a section", R"({"train_batch_size": 8, "optimizer": null})",
       "c.json:1:25: optimizer: found null; write an object { } of keys"},
      {"auto for a section", R"({"train_batch_size": 8, "optimizer": "auto"})",
       "c.json:1:25: optimizer: \"auto\" is no value of a section; write an object { } of keys, or "
       "remove the key"},
      {"auto that nothing fills", R"({"train_batch_size": 8, "steps_per_print": "auto"})",
       "c.json:1:25: steps_per_print: \"auto\" is no value of this key, nothing fills it; write a "
       "value, or remove the key"},
      {"auto for the scheduler's kind of warm-up",
       R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", )"
       R"("params": {"last_batch_iteration": "auto"}}})",
       "c.json:1:70: scheduler.params.last_batch_iteration: \"auto\" is no value of this key, "
       "nothing fills it; write a value, or remove the key"},
      {"fp16 and bf16",
       R"({"train_batch_size": 8, "fp16": {"enabled": true}, "bf16": {"enabled": true}})",
       "c.json:1:61: bf16.enabled: fp16 and bf16 are both enabled, DeepSpeed raises an error; "
       "enable one of the two"},
      {"a negative loss scale", R"({"train_batch_size": 8, "fp16": {"loss_scale": -1}})",
       "c.json:1:34: fp16.loss_scale: -1 is out of range; write a number >= 0"},
      {"a flag for the loss scale", R"({"train_batch_size": 8, "fp16": {"loss_scale": true}})",
       "c.json:1:34: fp16.loss_scale: found true; write a number >= 0"},
      {"a window of 0",
       R"({"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale_window": 0}})",
       "c.json:1:51: fp16.loss_scale_window: the dynamic loss scale needs a value above 0; write 1 "
       "or more"},
      {"a least scale of 0",
       R"({"train_batch_size": 8, "fp16": {"enabled": true, "min_loss_scale": 0}})",
       "c.json:1:51: fp16.min_loss_scale: the dynamic loss scale needs a value above 0; write 1 or "
       "more"},
      {"fp16 master weights without ZeRO",
       R"({"train_batch_size": 8, "fp16": {"fp16_master_weights_and_grads": true}})",
       "c.json:1:34: fp16.fp16_master_weights_and_grads: needs ZeRO stage 1, 2 or 3; write "
       "zero_optimization.stage"},
      {"bf16 states without bf16 master weights",
       R"({"train_batch_size": 8, "bf16": {"bf16_optimizer_states": true}, )"
       R"("zero_optimization": {"stage": 1}})",
       "c.json:1:34: bf16.bf16_optimizer_states: needs bf16.bf16_master_weights_and_grads: true; "
       "write both or none"},
      {"no batch size", R"({"gradient_accumulation_steps": 2})",
       "c.json:1:2: gradient_accumulation_steps: neither train_batch_size nor "
       "train_micro_batch_size_per_gpu is given; write one of the two"},
      {"an empty configuration", R"({})",
       "c.json:1:1: neither train_batch_size nor train_micro_batch_size_per_gpu is given; write "
       "one of the two"},
      {"sizes that do not multiply",
       R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 2, )"
       R"("gradient_accumulation_steps": 2})",
       "c.json:1:2: train_batch_size: train_batch_size 10 is not micro batch 2 x accumulation 2 x "
       "4 ranks; change one of the sizes, or the world",
       4},
      {"sizes that fit another world",
       R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, )"
       R"("gradient_accumulation_steps": 2})",
       "c.json:1:2: train_batch_size: train_batch_size 32 is not micro batch 4 x accumulation 2 x "
       "8 ranks; change one of the sizes, or the world: --world 4 fits",
       8},
      {"a product without accumulation that fits another world",
       R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2})",
       "c.json:1:2: train_batch_size: train_batch_size 12 is no multiple of micro batch 2 x 4 "
       "ranks; change one of the sizes, or the world: --world 3 fits",
       4},
      {"an accumulation that does not divide",
       R"({"train_batch_size": 12, "gradient_accumulation_steps": 2})",
       "c.json:1:2: train_batch_size: train_batch_size 12 is no multiple of accumulation 2 x 4 "
       "ranks; change one of the sizes, or the world",
       4},
      {"a batch that the world does not divide", R"({"train_batch_size": 10})",
       "c.json:1:2: train_batch_size: train_batch_size 10 is no multiple of 4 ranks; change one of "
       "the sizes, or the world",
       4},
      {"a batch smaller than the world",
       R"({"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1})",
       "c.json:1:2: train_batch_size: train_batch_size 2 is no multiple of micro batch 1 x 4 "
       "ranks; "
       "change one of the sizes, or the world: --world 2 fits",
       4},
      {"a batch of 0", R"({"train_batch_size": 0})",
       "c.json:1:2: train_batch_size: 0 is out of range; write a whole number >= 1"},
      {"a batch in quotes", R"({"train_batch_size": "32"})",
       "c.json:1:2: train_batch_size: found \"32\"; write a whole number >= 1, or null"},
      {"a fraction of a batch", R"({"train_micro_batch_size_per_gpu": 1.5})",
       "c.json:1:2: train_micro_batch_size_per_gpu: found 1.5; write a whole number >= 1, or null"},
      {"a sequence size that does not divide",
       R"({"train_batch_size": 8, "sequence_parallel_size": 3})",
       "c.json:1:25: sequence_parallel_size: 3 does not divide the 4 ranks of the world; choose a "
       "divisor",
       4},
      {"a tensor size that does not divide",
       R"({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 3}})",
       "c.json:1:45: tensor_parallel.autotp_size: 3 does not divide 4 ranks; choose a divisor", 4},
      {"a tp_size beside another autotp_size",
       R"({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 4, )"
       R"("tp": {"tp_size": 2}}})",
       "c.json:1:70: tensor_parallel.tp.tp_size: 2 is not autotp_size 4; remove tp_size"},
      {"a dtype of tensor_parallel",
       R"({"train_batch_size": 8, "tensor_parallel": {"dtype": "fp16"}})",
       "c.json:1:45: tensor_parallel.dtype: DeepSpeed takes a Python dtype here and refuses every "
       "value of a file; remove the key"},
      {"a sum on stage 3",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 3}, )"
       R"("gradient_allreduce_op": "sum"})",
       "c.json:1:60: gradient_allreduce_op: sum does not go with ZeRO stage 3; write mean"},
      {"an unknown operation", R"({"train_batch_size": 8, "gradient_allreduce_op": "max"})",
       "c.json:1:25: gradient_allreduce_op: found \"max\"; write one of mean, sum"},
      {"an unknown dtype", R"({"train_batch_size": 8, "communication_data_type": "fp8"})",
       "c.json:1:25: communication_data_type: found \"fp8\"; write one of fp32, fp16, bf16, or "
       "null"},
      {"a dtype that is not the model's",
       R"({"train_batch_size": 8, "bf16": {"enabled": true}, )"
       R"("data_types": {"param_dtype": "fp16"}})",
       "c.json:1:67: data_types.param_dtype: fp16 is not the model's dtype bf16; enable fp16 or "
       "bf16, or remove the key"},
      {"fp32 accumulation without ZeRO",
       R"({"train_batch_size": 8, "bf16": {"enabled": true}, )"
       R"("data_types": {"grad_accum_dtype": "fp32"}, "optimizer": {"type": "Adam"}})",
       "c.json:1:67: data_types.grad_accum_dtype: fp32 beside a model in bf16 needs ZeRO; write "
       "zero_optimization.stage, or the model's dtype"},
      {"prescaled gradients with ZeRO",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}, )"
       R"("prescale_gradients": true})",
       "c.json:1:60: prescale_gradients: does not go with ZeRO's reduce_scatter; write false, or "
       "reduce_scatter: false"},
      {"a divided gradient with ZeRO",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}, )"
       R"("gradient_predivide_factor": 2})",
       "c.json:1:60: gradient_predivide_factor: does not go with ZeRO's reduce_scatter; write 1.0, "
       "or reduce_scatter: false"},
      {"legacy stage 1",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 1, )"
       R"("legacy_stage1": true}})",
       "c.json:1:59: zero_optimization.legacy_stage1: DeepSpeed has no legacy stage 1 and raises "
       "an error; remove the key"},
      {"no norm on stage 3",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, )"
       R"("compute_grad_norm": false}})",
       "c.json:1:59: zero_optimization.compute_grad_norm: false needs ZeRO stage 1 or 2; write "
       "true"},
      {"an old and a new offload key",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, )"
       R"("cpu_offload": true, "offload_optimizer": {"device": "cpu"}}})",
       "c.json:1:59: zero_optimization.cpu_offload: deprecated, and "
       "zero_optimization.offload_optimizer is given too, DeepSpeed raises an error; remove "
       "zero_optimization.cpu_offload"},
      {"an old and a new save key",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, )"
       R"("stage3_gather_fp16_weights_on_model_save": true, )"
       R"("stage3_gather_16bit_weights_on_model_save": true}})",
       "c.json:1:59: zero_optimization.stage3_gather_fp16_weights_on_model_save: deprecated, and "
       "gather_16bit_weights_on_model_save is given too, DeepSpeed raises an error; remove the "
       "deprecated key"},
      {"a misspelt optimizer", R"({"train_batch_size": 8, "optimizer": {"type": "AdamWW"}})",
       "c.json:1:39: optimizer.type: DeepSpeed has no 'AdamWW', and torch.optim has none; write a "
       "name of either; did you mean 'AdamW'?"},
      {"a one-bit optimizer", R"({"train_batch_size": 8, "optimizer": {"type": "OneBitAdam"}})",
       "c.json:1:39: optimizer.type: DeepSpeed 0.19.8 has removed 'OneBitAdam'; choose AdamW, "
       "Adam, Lion or SGD, or name an older version with --from-version"},
      {"Lamb without fp16", R"({"train_batch_size": 8, "optimizer": {"type": "Lamb"}})",
       "c.json:1:39: optimizer.type: Lamb needs fp16 with the dynamic loss scale; enable fp16 with "
       "loss_scale 0"},
      {"SGD under ZeRO",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 1}, )"
       R"("optimizer": {"type": "SGD"}})",
       "c.json:1:74: optimizer.type: 'SGD' is not tested with ZeRO, DeepSpeed raises an error; "
       "write zero_allow_untested_optimizer: true"},
      {"AMSGrad",
       R"({"train_batch_size": 8, "optimizer": {"type": "Adam", )"
       R"("params": {"amsgrad": true}}})",
       "c.json:1:66: optimizer.params.amsgrad: DeepSpeed's optimizer has no AMSGrad and raises an "
       "error; write false"},
      {"one beta",
       R"({"train_batch_size": 8, "optimizer": {"type": "Adam", )"
       R"("params": {"betas": [0.9]}}})",
       "c.json:1:66: optimizer.params.betas: found [0.9]; write two numbers >= 0 and below 1, as "
       "in [0.9, 0.999]"},
      {"a rate in quotes",
       R"({"train_batch_size": 8, "optimizer": {"type": "Adam", )"
       R"("params": {"lr": "1e-3"}}})",
       "c.json:1:66: optimizer.params.lr: found \"1e-3\"; write a number >= 0"},
      {"a misspelt scheduler",
       R"({"train_batch_size": 8, "scheduler": {"type": "WarmUpLR", "params": {}}})",
       "c.json:1:39: scheduler.type: DeepSpeed has no 'WarmUpLR', and torch.optim.lr_scheduler has "
       "none; write a name of either; did you mean 'WarmupLR'?"},
      {"a scheduler without parameters",
       R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR"}})",
       "c.json:1:39: scheduler.type: scheduler.params is missing, DeepSpeed raises an error; write "
       "params: {}"},
      {"a decay without its end",
       R"({"train_batch_size": 8, "scheduler": {"type": "WarmupDecayLR", "params": {}}})",
       "c.json:1:39: scheduler.type: scheduler.params.total_num_steps is missing and has no "
       "default; write the key"},
      {"a warm-up of 0 steps",
       R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", )"
       R"("params": {"warmup_num_steps": 0}}})",
       "c.json:1:70: scheduler.params.warmup_num_steps: 0 is out of range; write a whole number >= "
       "1"},
      {"a warm-up that Python reads as float",
       R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", )"
       R"("params": {"warmup_num_steps": 1e11}}})",
       "c.json:1:70: scheduler.params.warmup_num_steps: found 1e11, which DeepSpeed reads as "
       "float; write the number without exponent"},
      {"a removed section that is off",
       R"({"train_batch_size": 8, "curriculum_learning": {"enabled": false}})",
       "c.json:1:25: curriculum_learning: DeepSpeed 0.19.8 has removed this key (legacy curriculum "
       "learning) and raises an error; the section is switched off, so nothing changes; remove the "
       "key"},
      {"a comment in a strict section",
       R"({"train_batch_size": 8, "tensorboard": {"_comment": "x"}})",
       "c.json:1:41: tensorboard._comment: no key of tensorboard, DeepSpeed raises an error; "
       "remove "
       "the key"},
      {"a stage for the section", R"({"train_batch_size": 8, "zero_optimization": 1})",
       "c.json:1:25: zero_optimization: found a number; write an object { } of keys, as in { "
       "\"stage\": 1 }"},
      {"a list of stages", R"({"train_batch_size": 8, "zero_optimization": {"stage": [0, 1]}})",
       "c.json:1:47: zero_optimization.stage: found a list, which only DeepSpeed's autotuner takes "
       "as a search space; write a whole number >= 0 and <= 3"},
      {"a removed section", R"({"train_batch_size": 8, "amp": {"enabled": true}})",
       "c.json:1:25: amp: DeepSpeed 0.19.8 has removed this key (Apex AMP) and raises an error; "
       "remove the key, or name an older version with --from-version"},
      {"a removed key of ZeRO",
       R"({"train_batch_size": 8, "zero_optimization": {"mics_shard_size": 8}})",
       "c.json:1:47: zero_optimization.mics_shard_size: DeepSpeed 0.19.7 has removed this key "
       "(MiCS) and raises an error; remove the key, or name an older version with --from-version"},
      {"an invalid tag_validation",
       R"({"train_batch_size": 8, "checkpoint": {"tag_validation": "Maybe"}})",
       "c.json:1:40: checkpoint.tag_validation: found \"Maybe\"; write one of Warn, Ignore, Fail"},
      {"an invalid writer",
       R"({"train_batch_size": 8, "checkpoint": {"writer": {"type": "slow"}}})",
       "c.json:1:51: checkpoint.writer.type: found \"slow\"; write one of mock, python, fast"},
      {"a ZenFlow ratio of 1",
       R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, )"
       R"("zenflow": {"topk_ratio": 1.0}}})",
       "c.json:1:71: zero_optimization.zenflow.topk_ratio: 1.0 is out of range; write a number "
       "above 0 and below 1"},
      {"an unknown compile pass", R"({"train_batch_size": 8, "compile": {"passes": ["z2"]}})",
       "c.json:1:37: compile.passes: found 'z2' in the list; write a list of z1, z3, autosp, "
       "autotp"},
      {"a load balance",
       R"({"train_batch_size": 8, "expert_parallel": {"load_balance_coeff": 0.1}})",
       "c.json:1:45: expert_parallel.load_balance_coeff: DeepSpeed takes null only; remove the "
       "key"},
      {"two mistakes at once", R"({"train_batch_size": 0, "fp16": {"enable": true}})",
       "c.json:1:2: train_batch_size: 0 is out of range; write a whole number >= 1\nc.json:1:34: "
       "fp16.enable: no key of fp16: DeepSpeed raises an error since 0.17.1, older versions ignore "
       "the key; remove the key, or name the version with --from-version; did you mean 'enabled'?"},
  };
  return cases;
}

TEST(RefusedDeepSpeed, EachWithItsMessage) {
  for (const Refused& wrong : refused()) {
    SCOPED_TRACE(wrong.name);
    const HjsonDocument document = read_hjson(wrong.text);
    ASSERT_TRUE(document.problems.empty());
    const DeepSpeedConfig config = parse_deepspeed(document.root, {.world = wrong.world});
    EXPECT_EQ(config.error_text("c.json"), wrong.message);
  }
}

TEST(RefusedDeepSpeed, AtLeastSixty) { EXPECT_GE(refused().size(), 60U); }

}  // namespace
}  // namespace sluice::migrate
