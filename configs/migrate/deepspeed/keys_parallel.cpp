// Rows of tensor_parallel, expert_parallel, compile, hybrid_engine and weight_quantization.
#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {

using enum KeyType;
using enum KeyClass;

// clang-format off
static void add_tensor_keys(KeyTable& t) {
  t.section("tensor_parallel", Unknown::kRaises, kMapped, "parallel.tensor");
  t.key("dtype", kAny, "\"fp16\"", kNotNeeded,
        "train.dtype; DeepSpeed's own type check refuses every text here");
  t.key("autotp_size", kInt, "0", kMapped, "parallel.tensor; 0 is 1").least(0);
  t.key("tp_overlap_comm", kBool, "false", kNotNeeded,
        "Sluice's planner decides which exchanges run beside computation").since({0, 16, 6});
  t.key("vocab_parallel_lm_head", kBool, "null", kNotNeeded,
        "Sluice always shards the vocabulary over tensor-parallel ranks").since({0, 19, 7});
  t.key("vocab_parallel_ce_backend", kChoice, "\"torch\"", kNotNeeded,
        "Sluice has one loss head").choices({"torch", "liger"}).since({0, 19, 7});
  t.key("injection_policy_tuple", kList, "null", kNotNeeded,
        "Sluice's model table knows how each parameter is sliced");
  t.key("partition_config", kObject, "null", kNotNeeded,
        "Sluice's model table knows how each parameter is sliced").since({0, 18, 6});
  t.key("preset_model", kText, "null", kNotNeeded,
        "model.type").since({0, 18, 6});
  t.key("keep_module_on_host", kBool, "false", kNotNeeded,
        "a rank of Sluice reads only its own ranges of a checkpoint");
  t.key("replace_with_kernel_inject", kBool, "false", kNotNeeded,
        "inference kernels of DeepSpeed").alias("kernel_inject");
  t.section("tensor_parallel.tensor_parallel", Unknown::kRaises, kMapped, "parallel.tensor")
      .alias("tp");
  t.key("tp_size", kInt, "1", kMapped, "parallel.tensor; DeepSpeed takes 1 or autotp_size");
  t.key("tp_grain_size", kInt, "1", kIgnored, "DeepSpeed does not read the value in training");
  t.key("mpu", kAny, "null", kNotNeeded, "an object of Python code");
  t.key("tp_group", kAny, "null", kNotNeeded, "an object of Python code");
}

static void add_expert_keys(KeyTable& t) {
  constexpr std::string_view kWhy = "Sluice has no expert parallelism";
  constexpr DeepSpeedVersion kTuned{0, 19, 7};
  t.section("expert_parallel", Unknown::kIgnores, kRefused, kWhy).nullable().since({0, 19, 2});
  for (const std::string_view name : {"enabled", "disable_triton_grouped_mm"}) {
    t.key(name, kBool, "false", kRefused, kWhy);
  }
  for (const std::string_view name : {"autoep_size", "expert_tensor_parallel_size"}) {
    t.key(name, kInt, "1", kRefused, kWhy).least(1);
  }
  t.key("validate_folding_routing", kBool, "false", kRefused, kWhy).since({0, 19, 3});
  t.key("async_split_plan", kBool, "false", kRefused, kWhy).since(kTuned);
  t.key("use_grouped_mm", kBool, "true", kRefused, kWhy);
  t.key("route_norm", kBool, "null", kRefused, kWhy);
  t.key("has_shared_experts", kBool, "null", kRefused, kWhy);
  t.key("route_scale", kFloat, "1.0", kRefused, kWhy);
  t.key("score_apply", kChoice, "\"auto\"", kRefused, kWhy).choices({"auto", "pre", "post"});
  t.key("score_func", kChoice, "\"auto\"", kRefused, kWhy)
      .choices({"auto", "softmax", "sigmoid"});
  t.key("combine_impl", kChoice, "\"auto\"", kRefused, kWhy)
      .choices({"auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"});
  t.key("row_weighting_impl", kChoice, "\"auto\"", kRefused, kWhy)
      .choices({"auto", "eager", "fused"}).since(kTuned);
  t.key("gate_up_impl", kChoice, "\"separate\"", kRefused, kWhy)
      .choices({"separate", "fused"}).since(kTuned);
  t.key("comm_backend", kChoice, "\"comm\"", kRefused, kWhy)
      .choices({"comm", "deepep"}).since(kTuned);
  t.key("comm_num_sm", kInt, "12", kRefused, kWhy).since(kTuned);
  t.key("comm_qp_margin", kInt, "4", kRefused, kWhy).since(kTuned);
  t.key("comm_max_tokens_per_rank", kInt, "0", kRefused, kWhy).since(kTuned);
  t.key("num_expert_groups", kInt, "null", kRefused, kWhy).least(1);
  t.key("num_limited_groups", kInt, "null", kRefused, kWhy).least(1);
  t.key("top_k", kIntOrAuto, "\"auto\"", kRefused, kWhy).least(1);
  t.key("routed_scaling_factor", kAny, "\"auto\"", kRefused, kWhy).keeps_auto();
  t.key("load_balance_coeff", kFloat, "null", kRefused,
        "DeepSpeed raises if the value is not null");
  for (const std::string_view name :
       {"preset_model", "moe_layer_pattern", "expert_pattern", "router_pattern", "expert_w1",
        "expert_w2", "expert_w3", "num_experts_attr", "top_k_attr", "shared_experts_pattern",
        "shared_experts_gate_pattern", "expert_activation"}) {
    t.key(name, kText, "null", kRefused, kWhy);
  }
}

static void add_compile_keys(KeyTable& t) {
  constexpr std::string_view kWhy = "a graph pass of torch.compile; Sluice compiles no graphs";
  t.section("compile", Unknown::kRaises, kNotNeeded, "Sluice's planner does what DeepCompile does")
      .since({0, 13, 2}).lenient_before({0, 16, 6});
  constexpr std::string_view kModel = "torch.compile of the model; Sluice compiles no graphs";
  constexpr DeepSpeedVersion kWithoutModel{0, 14, 4};
  t.key("enabled", kBool, "false", kNotNeeded, kModel).since({0, 13, 2}).removed(kWithoutModel);
  t.key("backend", kText, "\"inductor\"", kNotNeeded, kModel).since({0, 13, 2})
      .removed(kWithoutModel);
  t.key("kwargs", kObject, "{}", kNotNeeded, kModel).since({0, 13, 2}).removed(kWithoutModel);
  t.key("deepcompile", kBool, "false", kNotNeeded, kWhy).since({0, 16, 6});
  t.key("autoep_non_moe", kBool, "false", kNotNeeded, kWhy).since({0, 19, 7});
  for (const std::string_view name :
       {"free_activation", "offload_activation", "offload_opt_states", "symmetric_memory",
        "debug_log", "offload_parameters", "sync_before_reduce", "sync_after_reduce",
        "sync_before_allgather", "sync_after_allgather", "keep_all_input_tensors"}) {
    t.key(name, kBool, "false", kNotNeeded, kWhy).since({0, 16, 6});
  }
  for (const std::string_view name :
       {"double_buffer", "keep_int_input_tensors", "offload_activation_pin_memory"}) {
    t.key(name, kBool, "true", kNotNeeded, kWhy).since({0, 16, 6});
  }
  t.key("free_activation_threshold", kInt, "10485760", kNotNeeded, kWhy).since({0, 16, 6});
  t.key("passes", kTexts, "null", kNotNeeded, kWhy).since({0, 16, 6})
      .choices({"z1", "z3", "autosp", "autotp"});
}

static void add_engine_keys(KeyTable& t) {
  constexpr std::string_view kWhy = "generation inside training, for RLHF; Sluice has none";
  t.section("hybrid_engine", Unknown::kRaises, kRefused, kWhy);
  for (const std::string_view name :
       {"enabled", "release_inference_cache", "enable_cuda_graph"}) {
    t.key(name, kBool, "false", kRefused, kWhy);
  }
  t.key("pin_parameters", kBool, "true", kRefused, kWhy);
  t.key("max_out_tokens", kInt, "512", kRefused, kWhy).least(1);
  t.key("inference_tp_size", kInt, "1", kRefused, kWhy);
  t.key("tp_gather_partition_size", kInt, "8", kRefused, kWhy);

  constexpr std::string_view kQuantized = "quantized weights of inference and LoRA";
  t.section("weight_quantization", Unknown::kRaises, kRefused, kQuantized);
  t.key("enabled", kBool, "true", kRefused, kQuantized);
  t.key("num_bits", kInt, "8", kRefused, kQuantized);
  t.key("q_type", kChoice, "\"symmetric\"", kRefused, kQuantized)
      .choices({"symmetric", "asymmetric"});
  t.key("q_groups", kInt, "1", kRefused, kQuantized);
  t.key("quantized_initialization", kObject, "{}", kRefused, kQuantized);
  t.key("post_init_quant", kObject, "{}", kRefused, kQuantized);
}
// clang-format on

void add_parallel_keys(KeyTable& table) {
  add_tensor_keys(table);
  add_expert_keys(table);
  add_compile_keys(table);
  add_engine_keys(table);
}

}  // namespace sluice::migrate
