// Rows of zero_optimization.
#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {

using enum KeyType;
using enum KeyClass;

// clang-format off
static void add_stage_keys(KeyTable& t) {
  t.key("stage", kInt, "0", kMapped, "zero.stage").between(0, 3);
  t.key("contiguous_gradients", kBool, "true", kNotNeeded,
        "buckets of Sluice are always contiguous");
  t.key("reduce_scatter", kBool, "true", kNotNeeded,
        "Sluice always reduce-scatters on stages 1 to 3");
  t.key("reduce_bucket_size", kInt, "5e8", kChanged,
        "zero.bucket_bytes: DeepSpeed counts elements, Sluice counts bytes")
      .least(1).fills_auto().rule_before({0, 19, 7}, kInt, 0);
  t.key("use_multi_rank_bucket_allreduce", kBool, "true", kNotNeeded,
        "Sluice reduce-scatters a bucket in one operation").since({0, 12, 4});
  t.key("allgather_partitions", kBool, "true", kIgnored,
        "DeepSpeed parses the key and never reads the value");
  t.key("allgather_bucket_size", kInt, "5e8", kNotNeeded,
        "Sluice gathers group by group").least(0);
  t.key("overlap_comm", kBool, "null", kNotNeeded,
        "Sluice always reduces beside the backward; null in DeepSpeed is true on stage 3 only");
  t.key("compute_grad_norm", kBool, "true", kNotNeeded,
        "Sluice always computes the norm").since({0, 19, 7});
  t.key("round_robin_gradients", kBool, "false", kNotNeeded,
        "Sluice copies gradients of every rank in parallel");
  t.key("parameter_alignment", kBool, "false", kNotNeeded,
        "Sluice aligns every parameter").since({0, 19, 7});
  t.key("ignore_unused_parameters", kBool, "true", kNotNeeded,
        "every parameter of a Sluice model has a gradient");
  t.key("sub_group_size", kInt, "1e9", kChanged,
        "DeepSpeed updates sub-groups of elements; Sluice updates chunks of the ring")
      .least(0);
}

static void add_stage3_keys(KeyTable& t) {
  t.key("prefetch_bucket_size", kInt, "5e7", kChanged,
        "zero.prefetch_units: DeepSpeed counts elements, Sluice counts units")
      .alias("stage3_prefetch_bucket_size").least(0).fills_auto();
  t.key("param_persistence_threshold", kInt, "1e5", kChanged,
        "zero.persist_below: DeepSpeed keeps single parameters, Sluice keeps whole groups")
      .alias("stage3_param_persistence_threshold").least(0).fills_auto();
  t.key("model_persistence_threshold", kInt, "9223372036854775807", kNotNeeded,
        "Sluice's plan counts resident groups against memory.device")
      .alias("stage3_model_persistence_threshold").least(0);
  t.key("max_live_parameters", kInt, "1e9", kNotNeeded,
        "Sluice's plan knows which groups live at each operation")
      .alias("stage3_max_live_parameters").least(0);
  t.key("max_reuse_distance", kInt, "1e9", kNotNeeded,
        "Sluice's plan knows when a group is used again")
      .alias("stage3_max_reuse_distance").least(0);
  t.key("gather_16bit_weights_on_model_save", kBool, "false", kNotNeeded,
        "sluice checkpoint export writes 16-bit weights from any checkpoint")
      .alias("stage3_gather_16bit_weights_on_model_save");
  t.key("module_granularity_threshold", kInt, "0", kNotNeeded,
        "Sluice gathers whole units")
      .alias("stage3_module_granularity_threshold").since({0, 16, 0});
  t.key("use_all_reduce_for_fetch_params", kBool, "false", kNotNeeded,
        "Sluice gathers with all-gather")
      .alias("stage3_use_all_reduce_for_fetch_params").since({0, 14, 3});
  t.key("allgather_sequential", kBool, "false", kNotNeeded,
        "Sluice gathers group by group, without a copy into a bucket")
      .alias("stage3_allgather_sequential").since({0, 18, 5});
  t.key("stage3_gather_fp16_weights_on_model_save", kBool, "false", kNotNeeded,
        "deprecated name of gather_16bit_weights_on_model_save");
  t.key("memory_efficient_linear", kBool, "true", kNotNeeded,
        "units of Sluice keep what their backward needs, and no more");
  t.key("override_module_apply", kBool, "true", kNotNeeded, "Sluice has no Python modules");
  t.key("pipeline_loading_checkpoint", kBool, "false", kNotNeeded,
        "a rank of Sluice reads only its own ranges of a checkpoint");
  t.key("log_trace_cache_warnings", kBool, "false", kNotNeeded,
        "Sluice's order of operations is planned, not traced").since({0, 16, 4});
  t.key("enable_sanity_checks", kBool, "false", kNotNeeded,
        "Sluice checks every program before the run").since({0, 17, 6});
}

static void add_state_keys(KeyTable& t) {
  t.key("load_from_fp32_weights", kBool, "true", kNotNeeded,
        "checkpoints of Sluice hold the fp32 master weights");
  t.key("elastic_checkpoint", kBool, "false", kNotNeeded,
        "every checkpoint of Sluice loads on any number of ranks");
  t.key("legacy_stage1", kBool, "false", kRefused, "DeepSpeed raises if the value is true");
  t.key("cpu_offload", kBool, "null", kMapped,
        "deprecated: true is offload_optimizer {device: cpu}");
  t.key("cpu_offload_param", kBool, "null", kMapped,
        "deprecated: true is offload_param {device: cpu}");
  t.key("cpu_offload_use_pin_memory", kBool, "null", kIgnored,
        "deprecated: DeepSpeed warns and drops the value");
  t.key("zero_hpz_partition_size", kInt, "1", kRefused,
        "ZeRO++ secondary shards; Sluice has one set of shards").least(0);
  t.key("zero_quantized_weights", kBool, "false", kRefused,
        "ZeRO++ int8 gathers change the weights that the forward reads");
  t.key("zero_quantized_nontrainable_weights", kBool, "false", kRefused,
        "ZeRO++ quantized frozen weights change the forward");
  t.key("zero_quantized_gradients", kBool, "false", kRefused,
        "ZeRO++ int4 reduction changes the gradients");
  t.key("save_muon_momentum_buffer_in_memory", kBool, "false", kNotNeeded,
        "concerns the Muon optimizer on NVMe only").since({0, 18, 9});
}

static void add_offload_keys(KeyTable& t) {
  constexpr DeepSpeedVersion kPinned{0, 19, 5};
  t.section("zero_optimization.offload_param", Unknown::kRaises, kMapped, "offload.parameters")
      .nullable();
  t.key("device", kChoice, "\"none\"", kMapped,
        "offload.parameters; DeepSpeed ignores the section on stages 1 and 2")
      .choices({"none", "cpu", "nvme"});
  t.key("nvme_path", kText, "null", kMapped, "offload.nvme_path");
  t.key("buffer_count", kInt, "5", kNotNeeded, "Sluice plans its own buffers").least(0);
  t.key("buffer_size", kInt, "1e8", kNotNeeded, "Sluice plans its own buffers").least(0);
  t.key("max_in_cpu", kInt, "1e9", kNotNeeded, "memory.host is the limit of host memory")
      .least(0);
  t.key("pin_memory", kBool, "true", kNotNeeded,
        "Sluice always copies through pinned memory").before(kPinned, "false");

  t.section("zero_optimization.offload_optimizer", Unknown::kRaises, kMapped,
            "offload.optimizer").nullable();
  t.key("device", kChoice, "\"none\"", kMapped,
        "offload.optimizer; on stages 1 and 2 DeepSpeed reads nvme as cpu")
      .choices({"none", "cpu", "nvme"});
  t.key("nvme_path", kText, "null", kMapped, "offload.nvme_path");
  t.key("buffer_count", kInt, "4", kChanged,
        "DeepSpeed counts buffers of the largest tensor; Sluice plans the ring's slots").least(0);
  t.key("pin_memory", kBool, "true", kNotNeeded,
        "Sluice always copies through pinned memory").before(kPinned, "false");
  t.key("pipeline_read", kBool, "false", kNotNeeded, "the ring of Sluice always reads ahead");
  t.key("pipeline_write", kBool, "false", kNotNeeded, "the ring of Sluice always writes behind");
  t.key("fast_init", kBool, "false", kNotNeeded, "Sluice writes first states in place");
  t.key("ratio", kFloat, "1.0", kChanged,
        "offload.device_fraction = 1 - ratio; fractions below 1 need stage 3 in DeepSpeed")
      .between(0, 1);
  t.key("super_offload", kBool, "false", kChanged,
        "offload.speculate: Sluice's early update is exact").since({0, 18, 0});
  t.key("cpuadam_cores_perc", kFloat, "0.8", kNotNeeded,
        "Sluice binds its update threads to the cores of the rank")
      .between(0, 1).since({0, 18, 0});
}

static void add_zenflow_keys(KeyTable& t) {
  t.section("zero_optimization.zenflow", Unknown::kRaises, kRefused,
            "ZenFlow updates most gradients late; the result is another trajectory")
      .nullable().since({0, 17, 5});
  t.key("topk_ratio", kFloat, "0.1", kRefused, "ZenFlow").between(0, 1).without_limits();
  t.key("select_strategy", kChoice, "\"auto\"", kRefused, "ZenFlow")
      .choices({"auto", "step", "epoch"});
  t.key("select_interval", kIntOrAuto, "\"auto\"", kRefused, "ZenFlow");
  t.key("update_interval", kIntOrAuto, "\"auto\"", kRefused,
        "ZenFlow overwrites gradient_accumulation_steps with the interval").least(1);
  t.key("overlap_step", kBool, "false", kRefused, "ZenFlow");
  t.key("offload", kBool, "false", kRefused, "ZenFlow");
  t.key("auto_ratio", kFloat, "0.99", kRefused, "ZenFlow").between(0, 1);
  t.key("full_warm_up_rounds", kInt, "0", kRefused, "ZenFlow");
  t.key("pt_reserved_cores_perc", kFloat, "0.5", kRefused, "ZenFlow").between(0, 1);
  t.key("steps_per_epoch", kInt, "null", kRefused, "ZenFlow sets the value at run time");
}

static void add_leaf_keys(KeyTable& t) {
  t.section("zero_optimization.leaf_module", Unknown::kRaises, kNotNeeded,
            "units of Sluice are gathered whole").nullable().since({0, 18, 0});
  t.key("classes", kTexts,
        "[\"transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock\", "
        "\"transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock\", "
        "\"transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock\"]",
        kNotNeeded, "units of Sluice are gathered whole");
  t.key("names", kTexts, "[]", kNotNeeded, "units of Sluice are gathered whole");
  t.key("name_suffixes", kTexts, "[]", kNotNeeded, "units of Sluice are gathered whole");
}
// clang-format on

void add_zero_keys(KeyTable& table) {
  table.section("zero_optimization", Unknown::kRaises, kMapped, "zero and offload");
  add_stage_keys(table);
  add_stage3_keys(table);
  add_state_keys(table);
  add_offload_keys(table);
  add_zenflow_keys(table);
  add_leaf_keys(table);
}

}  // namespace sluice::migrate
