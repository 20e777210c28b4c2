#include <cmath>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kZero = "zero_optimization.";

std::string zero(std::string_view name) { return std::string(kZero) + std::string(name); }

double number_of(const DeepSpeedConfig& config, std::string_view path, double otherwise) {
  const auto found = config.values.find(path);
  return found == config.values.end() || found->second.value.kind != HjsonNode::Kind::kNumber
             ? otherwise
             : found->second.value.number;
}

void precision_rules(DeepSpeedConfig& config) {
  const bool fp16 = is_on(config, "fp16.enabled");
  if (fp16 && is_on(config, "bf16.enabled")) {
    add_mistake(config, "bf16.enabled",
                "fp16 and bf16 are both enabled, DeepSpeed raises an error; enable one of the two");
  }
  if (fp16 && number_of(config, "fp16.loss_scale", 0) == 0) {
    for (const std::string_view path : {"fp16.loss_scale_window", "fp16.min_loss_scale"}) {
      if (number_of(config, path, 1) > 0) continue;
      add_mistake(config, path, "the dynamic loss scale needs a value above 0; write 1 or more");
    }
  }
  for (const std::string_view path :
       {"fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads",
        "bf16.bf16_optimizer_states"}) {
    if (is_on(config, path) && stage_of(config) == 0) {
      add_mistake(config, path, "needs ZeRO stage 1, 2 or 3; write zero_optimization.stage");
    }
  }
  if (is_on(config, "bf16.bf16_optimizer_states") &&
      !is_on(config, "bf16.bf16_master_weights_and_grads")) {
    add_mistake(config, "bf16.bf16_optimizer_states",
                "needs bf16.bf16_master_weights_and_grads: true; write both or none");
  }
}

void dtype_rules(DeepSpeedConfig& config) {
  const std::string_view model = model_dtype(config);
  const std::string_view param = text_of(config, "data_types.param_dtype");
  if (!param.empty() && param != model) {
    add_mistake(config, "data_types.param_dtype",
                format_text("{} is not the model's dtype {}; enable fp16 or bf16, or remove the "
                            "key",
                            param, model));
  }
  const std::string_view accumulation = text_of(config, "data_types.grad_accum_dtype");
  if (!accumulation.empty() && accumulation != model && stage_of(config) == 0 &&
      !text_of(config, "optimizer.type").empty()) {
    add_mistake(config, "data_types.grad_accum_dtype",
                format_text("{} beside a model in {} needs ZeRO; write zero_optimization.stage, "
                            "or the model's dtype",
                            accumulation, model));
  }
  if (config.is_written("tensor_parallel.dtype")) {
    add_mistake(config, "tensor_parallel.dtype",
                "DeepSpeed takes a Python dtype here and refuses every value of a file; remove "
                "the key");
  }
}

void zero_rules(DeepSpeedConfig& config) {
  const std::int64_t stage = stage_of(config);
  if (is_on(config, zero("legacy_stage1")) && stage > 0) {
    add_mistake(config, zero("legacy_stage1"),
                "DeepSpeed has no legacy stage 1 and raises an error; remove the key");
  }
  if (config.is_written(zero("compute_grad_norm")) && !is_on(config, zero("compute_grad_norm")) &&
      stage != 1 && stage != 2) {
    add_mistake(config, zero("compute_grad_norm"), "false needs ZeRO stage 1 or 2; write true");
  }
  if (number_of(config, zero("offload_optimizer.ratio"), 1) < 1 && stage != 3) {
    add_mistake(config, zero("offload_optimizer.ratio"),
                "below 1 needs ZeRO stage 3; write 1.0, or stage 3");
  }
  // DeepSpeed asserts this only where it partitions gradients: stages 2 and 3.
  if (stage < 2 || !is_on(config, zero("reduce_scatter"))) return;
  if (is_on(config, "prescale_gradients")) {
    add_mistake(config, "prescale_gradients",
                "does not go with ZeRO's reduce_scatter; write false, or reduce_scatter: false");
  }
  if (number_of(config, "gradient_predivide_factor", 1) != 1) {
    add_mistake(config, "gradient_predivide_factor",
                "does not go with ZeRO's reduce_scatter; write 1.0, or reduce_scatter: false");
  }
}

void offload_rules(DeepSpeedConfig& config) {
  for (const std::string_view section : {"offload_param", "offload_optimizer"}) {
    const std::string path = zero(section);
    if (stage_of(config) != 3 || text_of(config, path + ".device") != "nvme") continue;
    if (!text_of(config, path + ".nvme_path").empty()) continue;
    add_mistake(config, path + ".device", "nvme needs a directory; write nvme_path");
  }
}

void gradient_rules(DeepSpeedConfig& config) {
  const auto refuse = [&config](const char* what) {
    add_mistake(config, "gradient_allreduce_op",
                std::string("sum does not go with ") + what + "; write mean");
  };
  if (text_of(config, "gradient_allreduce_op") == "sum") {
    if (stage_of(config) == 3) refuse("ZeRO stage 3");
    if (config.has(zero("zenflow.topk_ratio"))) refuse("ZenFlow");
    if (is_on(config, "compile.deepcompile")) refuse("DeepCompile");
  }
  const bool managed = !config.has("managed_gradient_accumulation") ||
                       is_on(config, "managed_gradient_accumulation");
  const bool overlap = is_on(config, zero("overlap_comm")) ||
                       (stage_of(config) == 3 && config.is_null(zero("overlap_comm")));
  if (!managed && overlap && stage_of(config) < 2) {
    add_mistake(config, "managed_gradient_accumulation",
                "false goes with overlap_comm on ZeRO stage 2 only; write overlap_comm: false");
  }
  if (!managed && is_on(config, "compile.deepcompile")) {
    add_mistake(config, "managed_gradient_accumulation",
                "false does not go with DeepCompile; write true");
  }
}

void parallel_rules(DeepSpeedConfig& config) {
  const std::int64_t autotp = count_of(config, "tensor_parallel.autotp_size").value_or(0);
  constexpr std::string_view kSize = "tensor_parallel.tensor_parallel.tp_size";
  const std::int64_t size = count_of(config, kSize).value_or(1);
  if (autotp > 1 && size != 1 && size != autotp) {
    add_mistake(config, kSize,
                format_text("{} is not autotp_size {}; remove tp_size", size, autotp));
  }
  constexpr std::string_view kCoefficient = "expert_parallel.load_balance_coeff";
  if (config.has(kCoefficient) && !config.is_null(kCoefficient)) {
    add_mistake(config, kCoefficient, "DeepSpeed takes null only; remove the key");
  }
}

void other_rules(DeepSpeedConfig& config) {
  for (const std::string_view path : {"autotuning.results_dir", "autotuning.exps_dir"}) {
    if (text_of(config, path).empty()) {
      add_mistake(config, path, "an empty path; write a directory, or remove the key");
    }
  }
  const std::string sampling = "data_efficiency.data_sampling.";
  if (is_on(config, sampling + "dynamic_batching.enabled") &&
      config.is_null(sampling + "dynamic_batching.max_tokens")) {
    add_mistake(config, sampling + "dynamic_batching.enabled",
                "needs max_tokens; write the tokens of a batch");
  }
  if (is_on(config, sampling + "curriculum_learning.enabled") &&
      config.is_null(sampling + "curriculum_learning.curriculum_metrics")) {
    add_mistake(config, sampling + "curriculum_learning.enabled",
                "needs curriculum_metrics; write the metrics");
  }
}

}  // namespace

void apply_section_rules(DeepSpeedConfig& config) {
  precision_rules(config);
  dtype_rules(config);
  zero_rules(config);
  offload_rules(config);
  gradient_rules(config);
  parallel_rules(config);
  other_rules(config);
}

}  // namespace sluice::migrate
