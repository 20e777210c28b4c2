#include "configs/migrate/launcher/trainer_keys.hpp"

#include <algorithm>
#include <array>

namespace sluice::migrate {
namespace {

using enum KeyClass;
using enum TrainerType;

constexpr std::string_view kCompiler =
    "a compiler or kernel of PyTorch modules, for the same values";
constexpr std::string_view kHub = "push an export yourself: `sluice checkpoint export`";
constexpr std::string_view kLoader = "Sluice reads packed tokens without a DataLoader";
constexpr std::string_view kDdp = "a setting of DistributedDataParallel";
constexpr std::string_view kEval = "Sluice's evaluation is a mean loss over eval_steps batches";
constexpr std::string_view kLog = "Sluice has one progress line and metrics.jsonl";
constexpr std::string_view kScript = "a flag for the script";
constexpr std::string_view kNone = "Sluice has no such thing";
constexpr std::string_view kBf16 = "fills \"auto\" at bf16.enabled";
constexpr std::string_view kFp16 = "fills \"auto\" at fp16.enabled";
constexpr std::string_view kGone = "Transformers 5 has removed it";

constexpr auto kKeys = std::to_array<TrainerKey>({
    {"output_dir", kText, "null", kMapped, ""},
    {"per_device_train_batch_size", kCount, "8", kMapped, ""},
    {"gradient_accumulation_steps", kCount, "1", kMapped, ""},
    {"num_train_epochs", kNumber, "3.0", kMapped, ""},
    {"max_steps", kCount, "-1", kMapped, ""},
    {"learning_rate", kNumber, "5e-05", kMapped, ""},
    {"lr_scheduler_type", kText, "\"linear\"", kMapped, ""},
    {"lr_scheduler_kwargs", kAny, "null", kMapped, "values of lr_scheduler_type"},
    {"warmup_steps", kNumber, "0", kMapped, ""},
    {"warmup_ratio", kNumber, "0.0", kMapped, "a share of the steps"},
    {"optim", kText, "\"adamw_torch_fused\"", kMapped, ""},
    {"optim_args", kText, "null", kRefused, "give the optimizer's values with --set optimizer.KEY"},
    {"optim_target_modules", kAny, "null", kRefused, kNone},
    {"weight_decay", kNumber, "0.0", kMapped, ""},
    {"adam_beta1", kNumber, "0.9", kMapped, ""},
    {"adam_beta2", kNumber, "0.999", kMapped, ""},
    {"adam_epsilon", kNumber, "1e-08", kMapped, ""},
    {"max_grad_norm", kNumber, "1.0", kMapped, ""},
    {"bf16", kFlag, "false", kMapped, kBf16},
    {"fp16", kFlag, "false", kMapped, kFp16},
    {"bf16_full_eval", kFlag, "false", kMapped, kBf16},
    {"fp16_full_eval", kFlag, "false", kMapped, kFp16},
    {"seed", kCount, "42", kMapped, ""},
    {"data_seed", kCount, "null", kRefused, "train.seed orders the samples too"},
    {"logging_strategy", kText, "\"steps\"", kMapped, "decides on logging_steps"},
    {"logging_steps", kNumber, "500", kMapped, ""},
    {"eval_strategy", kText, "\"no\"", kMapped, "decides on eval_steps"},
    {"eval_steps", kNumber, "null", kMapped, ""},
    {"save_strategy", kText, "\"steps\"", kMapped, "decides on save_steps"},
    {"save_steps", kNumber, "500", kMapped, ""},
    {"save_total_limit", kCount, "null", kMapped, ""},
    {"gradient_checkpointing", kFlag, "false", kMapped, ""},
    {"activation_checkpointing", kFlag, "false", kMapped, ""},
    {"report_to", kWords, "\"none\"", kMapped, ""},
    {"resume_from_checkpoint", kText, "null", kMapped, ""},
    {"deepspeed", kAny, "null", kMapped, "the DeepSpeed configuration"},
    {"label_smoothing_factor", kNumber, "0.0", kRefused, kNone},
    {"neftune_noise_alpha", kNumber, "null", kRefused, kNone},
    {"auto_find_batch_size", kFlag, "false", kRefused,
     "give a micro batch that 'sluice plan' fits"},
    {"parallelism_config", kAny, "null", kRefused, "give parallel.tensor with --set"},
    {"fsdp", kText, "null", kRefused, "give accelerate's file of FSDP instead"},
    {"fsdp_config", kAny, "null", kRefused, "give accelerate's file of FSDP instead"},
    {"use_cpu", kFlag, "false", kChanged, "set CUDA_VISIBLE_DEVICES= to train on CPUs here"},
    {"per_device_eval_batch_size", kCount, "8", kNotNeeded, kEval},
    {"average_tokens_across_devices", kFlag, "true", kNotNeeded,
     "all samples have model.seq tokens"},
    {"tf32", kFlag, "null", kNotNeeded, "a GPU's form of fp32 products"},
    {"activation_checkpointing_kwargs", kAny, "null", kNotNeeded,
     "PyTorch's forms of one recompute"},
    {"gradient_checkpointing_kwargs", kAny, "null", kNotNeeded, "PyTorch's forms of one recompute"},
    {"torch_compile", kFlag, "false", kNotNeeded, kCompiler},
    {"torch_compile_backend", kText, "null", kNotNeeded, kCompiler},
    {"torch_compile_mode", kText, "null", kNotNeeded, kCompiler},
    {"use_liger_kernel", kFlag, "false", kNotNeeded, kCompiler},
    {"liger_kernel_config", kAny, "null", kNotNeeded, kCompiler},
    {"use_cache", kFlag, "false", kNotNeeded, "training has no cache of keys and values"},
    {"torch_empty_cache_steps", kCount, "null", kNotNeeded, "the plan bounds memory"},
    {"logging_first_step", kFlag, "false", kNotNeeded, "Sluice prints step 1"},
    {"log_on_each_node", kFlag, "true", kNotNeeded, kLog},
    {"logging_nan_inf_filter", kFlag, "true", kNotNeeded, kLog},
    {"include_num_input_tokens_seen", kAny, "\"no\"", kNotNeeded, kLog},
    {"log_level", kText, "\"passive\"", kNotNeeded, kLog},
    {"log_level_replica", kText, "\"warning\"", kNotNeeded, kLog},
    {"disable_tqdm", kFlag, "null", kNotNeeded, kLog},
    {"run_name", kText, "null", kNotNeeded, "the run's name is the folder output.dir"},
    {"project", kText, "\"huggingface\"", kNotNeeded, kLog},
    {"trackio_space_id", kText, "null", kNotNeeded, kLog},
    {"trackio_bucket_id", kText, "null", kNotNeeded, kLog},
    {"trackio_static_space_id", kAny, "null", kNotNeeded, kLog},
    {"eval_delay", kNumber, "0", kNotNeeded, kEval},
    {"prediction_loss_only", kFlag, "false", kNotNeeded, kEval},
    {"eval_on_start", kFlag, "false", kNotNeeded, kEval},
    {"eval_do_concat_batches", kFlag, "true", kNotNeeded, kEval},
    {"eval_use_gather_object", kFlag, "false", kNotNeeded, kEval},
    {"eval_accumulation_steps", kCount, "null", kNotNeeded, kEval},
    {"include_for_metrics", kWords, "[]", kNotNeeded, kEval},
    {"batch_eval_metrics", kFlag, "false", kNotNeeded, kEval},
    {"save_only_model", kFlag, "false", kNotNeeded, "a checkpoint of Sluice can always go on"},
    {"save_on_each_node", kFlag, "false", kNotNeeded, "checkpoint.dir is shared by all hosts"},
    {"enable_jit_checkpoint", kFlag, "false", kNotNeeded, "SIGTERM saves the run here"},
    {"push_to_hub", kFlag, "false", kNotNeeded, kHub},
    {"hub_token", kText, "null", kNotNeeded, kHub},
    {"hub_private_repo", kFlag, "null", kNotNeeded, kHub},
    {"hub_model_id", kText, "null", kNotNeeded, kHub},
    {"hub_strategy", kText, "\"every_save\"", kNotNeeded, kHub},
    {"hub_always_push", kFlag, "false", kNotNeeded, kHub},
    {"hub_revision", kText, "null", kNotNeeded, kHub},
    {"load_best_model_at_end", kFlag, "false", kChanged,
     "the Trainer ends with the best checkpoint, Sluice with the newest; metrics.jsonl has the "
     "losses"},
    {"metric_for_best_model", kText, "null", kNotNeeded, kEval},
    {"greater_is_better", kFlag, "null", kNotNeeded, kEval},
    {"ignore_data_skip", kFlag, "false", kChanged,
     "the Trainer may repeat samples after a restart, Sluice goes on at the next sample"},
    {"restore_callback_states_from_checkpoint", kFlag, "false", kNotNeeded, kScript},
    {"full_determinism", kFlag, "false", kNotNeeded, "runs of Sluice repeat their bits"},
    {"accelerator_config", kAny, "null", kNotNeeded, kLoader},
    {"dataloader_drop_last", kFlag, "false", kNotNeeded, kLoader},
    {"dataloader_num_workers", kCount, "0", kNotNeeded, kLoader},
    {"dataloader_pin_memory", kFlag, "true", kNotNeeded, kLoader},
    {"dataloader_persistent_workers", kFlag, "false", kNotNeeded, kLoader},
    {"dataloader_prefetch_factor", kCount, "null", kNotNeeded, kLoader},
    {"dataloader_multiprocessing_context", kText, "null", kNotNeeded, kLoader},
    {"dataloader_in_order", kFlag, "true", kNotNeeded, kLoader},
    {"remove_unused_columns", kFlag, "true", kNotNeeded, kLoader},
    {"label_names", kWords, "null", kNotNeeded, kLoader},
    {"train_sampling_strategy", kText, "\"random\"", kNotNeeded,
     "all samples have model.seq tokens"},
    {"length_column_name", kText, "\"length\"", kNotNeeded, kLoader},
    {"ddp_find_unused_parameters", kFlag, "null", kNotNeeded, kDdp},
    {"ddp_bucket_cap_mb", kCount, "null", kNotNeeded, kDdp},
    {"ddp_broadcast_buffers", kFlag, "null", kNotNeeded, kDdp},
    {"ddp_static_graph", kFlag, "null", kNotNeeded, kDdp},
    {"ddp_backend", kText, "null", kNotNeeded, kDdp},
    {"ddp_timeout", kCount, "1800", kNotNeeded, "launch.timeout has its own default"},
    {"debug", kWords, "\"\"", kNotNeeded, kLog},
    {"skip_memory_metrics", kFlag, "true", kNotNeeded, kLog},
    {"do_train", kFlag, "false", kNotNeeded, kScript},
    {"do_eval", kFlag, "false", kNotNeeded, kScript},
    {"do_predict", kFlag, "false", kNotNeeded, kScript},
    {"local_rank", kCount, "-1", kNotNeeded, "ranks come from the environment"},
    {"evaluation_strategy", kText, "\"no\"", kMapped, "decides on eval_steps", "eval_strategy"},
    {"no_cuda", kFlag, "false", kChanged, "set CUDA_VISIBLE_DEVICES= to train on CPUs here",
     "use_cpu"},
    {"per_gpu_train_batch_size", kCount, "8", kMapped, "", "per_device_train_batch_size"},
    {"per_gpu_eval_batch_size", kCount, "8", kNotNeeded, kEval, "per_device_eval_batch_size"},
    {"adafactor", kFlag, "false", kRefused, "Sluice has adamw, lion and sgd"},
    {"group_by_length", kFlag, "false", kNotNeeded, "all samples have model.seq tokens"},
    {"overwrite_output_dir", kFlag, "false", kNotNeeded, kGone},
    {"logging_dir", kText, "null", kNotNeeded, "event files are in output.dir"},
    {"save_safetensors", kFlag, "true", kNotNeeded,
     "`sluice checkpoint export` writes safetensors"},
    {"fp16_opt_level", kText, "\"O1\"", kNotNeeded, kGone},
    {"fp16_backend", kText, "\"auto\"", kNotNeeded, kGone},
    {"half_precision_backend", kText, "\"auto\"", kNotNeeded, kGone},
    {"jit_mode_eval", kFlag, "false", kNotNeeded, kGone},
    {"use_ipex", kFlag, "false", kNotNeeded, kGone},
    {"use_mps_device", kFlag, "false", kNotNeeded, kGone},
    {"past_index", kCount, "-1", kNotNeeded, kGone},
    {"tpu_num_cores", kCount, "null", kNotNeeded, kGone},
    {"tpu_metrics_debug", kFlag, "false", kNotNeeded, kGone},
    {"torchdynamo", kText, "null", kNotNeeded, kCompiler},
    {"ray_scope", kText, "\"last\"", kNotNeeded, kGone},
    {"mp_parameters", kText, "\"\"", kNotNeeded, kGone},
    {"split_batches", kFlag, "null", kNotNeeded, kLoader},
    {"include_tokens_per_second", kFlag, "false", kNotNeeded, kLog},
    {"include_inputs_for_metrics", kFlag, "false", kNotNeeded, kEval},
    {"dispatch_batches", kFlag, "null", kNotNeeded, kLoader},
    {"push_to_hub_model_id", kText, "null", kNotNeeded, kHub},
    {"push_to_hub_organization", kText, "null", kNotNeeded, kHub},
    {"push_to_hub_token", kText, "null", kNotNeeded, kHub},
    {"fsdp_min_num_params", kCount, "0", kRefused, "give accelerate's file of FSDP instead"},
    {"fsdp_transformer_layer_cls_to_wrap", kText, "null", kRefused,
     "give accelerate's file of FSDP instead"},
    {"use_legacy_prediction_loop", kFlag, "false", kNotNeeded, kGone},
});

}  // namespace

std::span<const TrainerKey> trainer_keys() { return kKeys; }

const TrainerKey* find_trainer_key(std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(),
                                  [name](const TrainerKey& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

}  // namespace sluice::migrate
