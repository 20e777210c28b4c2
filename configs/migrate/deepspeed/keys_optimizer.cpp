// Rows of optimizer and scheduler. A row of params belongs to the types that take the parameter.
#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {

using enum KeyType;
using enum KeyClass;

// clang-format off
static void add_optimizer_section(KeyTable& t) {
  t.section("optimizer", Unknown::kIgnores, kMapped, "optimizer");
  t.key("type", kText, "null", kMapped,
        "optimizer.type; DeepSpeed's own names have no letter case, other names are torch.optim's")
      .any_case().carried({"adam", "adamw", "lion", "sgd"});
  t.key("legacy_fusion", kBool, "false", kNotNeeded, "one fused update for all parameters");
  t.section("optimizer.params", Unknown::kRaises, kMapped, "optimizer");
}

static void add_adam_keys(KeyTable& t) {
  t.variants({"adam", "adamw"});
  t.key("lr", kFloat, "1e-3", kMapped, "optimizer.lr").least(0).fills_auto();
  t.key("betas", kList, "[0.9, 0.999]", kMapped, "optimizer.betas").fills_auto();
  t.key("eps", kFloat, "1e-8", kMapped, "optimizer.eps").least(0).fills_auto();
  t.key("weight_decay", kFloat, "0", kChanged,
        "optimizer.weight_decay: DeepSpeed decays all parameters, Sluice by default matrices")
      .least(0).fills_auto();
  t.key("bias_correction", kBool, "true", kMapped, "optimizer.bias_correction");
  t.key("amsgrad", kBool, "false", kRefused, "DeepSpeed's FusedAdam raises if the value is true");
  t.key("adam_w_mode", kBool, "true", kChanged,
        "type Adam is AdamW unless the value is false; type AdamW ignores the value");
  t.key("torch_adam", kBool, "false", kNotNeeded, "Sluice has one Adam");
  t.key("set_grad_none", kBool, "true", kNotNeeded, "gradients of Sluice live in buckets");
  t.key("fp32_optimizer_states", kBool, "true", kChanged,
        "false is offload.states_dtype in the model's dtype");
  t.key("foreach", kBool, "null", kNotNeeded, "read only with torch_adam");
}

static void add_rate_and_decay(KeyTable& t, std::string_view lr) {
  t.key("lr", kFloat, lr, kMapped, "optimizer.lr").least(0).fills_auto();
  t.key("weight_decay", kFloat, "0", kChanged,
        "optimizer.weight_decay: DeepSpeed decays all parameters, Sluice by default matrices")
      .least(0).fills_auto();
}

static void add_other_optimizer_keys(KeyTable& t) {
  constexpr std::string_view kLamb = "a parameter of LAMB, which Sluice does not have";
  constexpr std::string_view kMuon = "a parameter of Muon, which Sluice does not have";
  t.variants({"adagrad"});
  add_rate_and_decay(t, "1e-2");
  t.key("eps", kFloat, "1e-10", kMapped, "optimizer.eps").least(0).fills_auto();
  t.key("amsgrad", kBool, "false", kNotNeeded, "DeepSpeed never reads the value");
  t.key("fp32_optimizer_states", kBool, "true", kRefused, "states of Sluice's Adagrad");
  t.variants({"lamb"});
  add_rate_and_decay(t, "1e-3");
  t.key("betas", kList, "[0.9, 0.999]", kMapped, "optimizer.betas").fills_auto();
  t.key("eps", kFloat, "1e-8", kMapped, "optimizer.eps").least(0).fills_auto();
  t.key("bias_correction", kBool, "true", kRefused, kLamb);
  t.key("eps_inside_sqrt", kBool, "false", kRefused, kLamb);
  t.key("amsgrad", kBool, "false", kRefused, "DeepSpeed's FusedLamb raises if the value is true");
  t.key("max_coeff", kFloat, "10.0", kRefused, kLamb);
  t.key("min_coeff", kFloat, "0.01", kRefused, kLamb);
  t.variants({"lion"});
  add_rate_and_decay(t, "1e-3");
  t.key("betas", kList, "[0.9, 0.999]", kMapped, "optimizer.betas").fills_auto();
  t.key("set_grad_none", kBool, "true", kNotNeeded, "gradients of Sluice live in buckets");
  t.key("fp32_optimizer_states", kBool, "true", kChanged,
        "false is offload.states_dtype in the model's dtype");
  t.variants({"sgd"});
  t.key("lr", kFloat, "1e-3", kMapped, "optimizer.lr").least(0).fills_auto();
  t.key("momentum", kFloat, "0", kMapped, "optimizer.momentum").least(0);
  t.key("weight_decay", kFloat, "0", kChanged,
        "optimizer.weight_decay: torch.optim.SGD adds the decay to the gradient").least(0)
      .fills_auto();
  t.key("dampening", kFloat, "0", kRefused, "Sluice's SGD has no dampening");
  for (const std::string_view name : {"nesterov", "maximize", "differentiable"}) {
    t.key(name, kBool, "false", kRefused, "Sluice's SGD has no such variant");
  }
  for (const std::string_view name : {"foreach", "fused"}) {
    t.key(name, kBool, "null", kNotNeeded, "one fused update for all parameters");
  }
  t.variants({"muon"});
  add_rate_and_decay(t, "0.02");
  t.key("momentum", kFloat, "0.95", kRefused, kMuon);
  t.key("betas", kList, "[0.9, 0.999]", kRefused, kMuon).fills_auto();
  t.key("eps", kFloat, "1e-8", kRefused, kMuon).least(0).fills_auto();
  t.key("ns_method", kText, "\"gram\"", kRefused, kMuon).since({0, 19, 0});
  t.key("muon_lr", kFloat, "null", kRefused, kMuon).least(0);
  t.key("adam_lr", kFloat, "null", kRefused, kMuon).least(0);
  t.key("adam_w_mode", kBool, "true", kRefused, kMuon);
  t.key("torch_adam", kBool, "false", kNotNeeded, kMuon);
  t.key("fp32_optimizer_states", kBool, "true", kRefused, kMuon);
}

static void add_warmup_keys(KeyTable& t) {
  t.variants({"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
  t.key("warmup_num_steps", kInt, "1000", kMapped,
        "schedule.warmup_steps; 1 is read as 2, here too").least(1).fills_auto();
  t.key("warmup_type", kText, "\"log\"", kMapped,
        "schedule.warmup: linear, or log for every other word");
  t.key("last_batch_iteration", kInt, "-1", kRefused, "a schedule of Sluice starts at step 0");
  t.variants({"WarmupLR", "WarmupDecayLR"});
  t.key("warmup_min_lr", kFloat, "0", kMapped,
        "schedule.warmup_min_lr, and schedule.min_lr of WarmupDecayLR").least(0).fills_auto();
  t.variants({"WarmupLR"});
  t.key("warmup_max_lr", kFloat, "null", kMapped,
        "optimizer.lr in place of the optimizer's lr; null is the optimizer's lr")
      .least(0).fills_auto();
  t.variants({"WarmupDecayLR"});
  t.key("warmup_max_lr", kFloat, "0.001", kMapped,
        "optimizer.lr in place of the optimizer's lr; the default is 0.001, not that lr")
      .least(0).fills_auto();
  t.variants({"WarmupDecayLR", "WarmupCosineLR"});
  t.key("total_num_steps", kInt, "null", kMapped, "schedule.decay_steps").required().least(1)
      .fills_auto();
  t.variants({"WarmupCosineLR"});
  t.key("warmup_min_ratio", kFloat, "0", kMapped,
        "schedule.warmup_min_lr as a share of optimizer.lr").least(0);
  t.key("cos_min_ratio", kFloat, "1e-4", kMapped,
        "schedule.min_lr as a share of optimizer.lr").least(0);
}

static void add_cycle_keys(KeyTable& t) {
  constexpr std::string_view kWhy = "Sluice has no such schedule";
  t.variants({"OneCycle"});
  t.key("cycle_min_lr", kFloat, "null", kRefused, kWhy).required();
  t.key("cycle_max_lr", kFloat, "null", kRefused, kWhy).required();
  t.key("decay_lr_rate", kFloat, "0", kRefused, kWhy);
  t.key("cycle_first_step_size", kInt, "2000", kRefused, kWhy).least(1);
  t.key("cycle_second_step_size", kInt, "null", kRefused, kWhy).least(0);
  t.key("cycle_first_stair_count", kInt, "0", kRefused, kWhy);
  t.key("cycle_second_stair_count", kInt, "null", kRefused, kWhy);
  t.key("decay_step_size", kInt, "0", kRefused, kWhy);
  t.key("cycle_momentum", kBool, "true", kRefused, kWhy);
  t.key("cycle_min_mom", kFloat, "0.8", kRefused, kWhy);
  t.key("cycle_max_mom", kFloat, "0.9", kRefused, kWhy);
  t.key("decay_mom_rate", kFloat, "0", kRefused, kWhy);
  t.key("last_batch_iteration", kInt, "-1", kRefused, kWhy);
  t.variants({"LRRangeTest"});
  t.key("lr_range_test_min_lr", kFloat, "1e-3", kRefused, kWhy);
  t.key("lr_range_test_step_size", kInt, "2000", kRefused, kWhy).least(1);
  t.key("lr_range_test_step_rate", kFloat, "1.0", kRefused, kWhy);
  t.key("lr_range_test_staircase", kBool, "false", kRefused, kWhy);
  t.key("last_batch_iteration", kInt, "-1", kRefused, kWhy);
}
// clang-format on

void add_optimizer_keys(KeyTable& table) {
  add_optimizer_section(table);
  add_adam_keys(table);
  add_other_optimizer_keys(table);
  // clang-format off
  table.section("scheduler", Unknown::kIgnores, kMapped, "schedule");
  table.key("type", kText, "null", kMapped,
            "schedule.type; other names than DeepSpeed's are torch.optim.lr_scheduler's")
      .carried({"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
  table.section("scheduler.params", Unknown::kRaises, kMapped, "schedule");
  // clang-format on
  add_warmup_keys(table);
  add_cycle_keys(table);
}

}  // namespace sluice::migrate
