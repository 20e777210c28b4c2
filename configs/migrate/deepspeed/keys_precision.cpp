// Rows of fp16, bf16, torch_autocast and data_types.
#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {

using enum KeyType;
using enum KeyClass;

// clang-format off
static void add_fp16_keys(KeyTable& t) {
  t.section("fp16", Unknown::kRaises, kMapped, "train.dtype: fp16 and loss_scale")
      .lenient_before({0, 17, 1});
  t.key("enabled", kBool, "false", kMapped, "train.dtype: fp16").fills_auto();
  t.key("auto_cast", kBool, "false", kNotNeeded, "inputs of a Sluice model are token ids");
  t.key("loss_scale", kFloat, "0", kMapped,
        "loss_scale.static; 0 is the dynamic scale")
      .least(0).refuses_bool();
  t.key("initial_scale_power", kInt, "16", kMapped, "loss_scale.initial = 2^power");
  t.key("loss_scale_window", kInt, "1000", kMapped, "loss_scale.window").refuses_bool();
  t.key("hysteresis", kInt, "2", kMapped, "loss_scale.hysteresis");
  t.key("consecutive_hysteresis", kBool, "false", kMapped, "loss_scale.consecutive_hysteresis");
  t.key("min_loss_scale", kInt, "1", kMapped, "loss_scale.min").refuses_bool()
      .rule_before({0, 17, 1}, kFloat);
  t.key("fp16_master_weights_and_grads", kBool, "false", kRefused,
        "master weights of Sluice are fp32");
}

static void add_bf16_keys(KeyTable& t) {
  t.section("bf16", Unknown::kRaises, kMapped, "train.dtype: bf16").alias("bfloat16").nullable()
      .lenient_before({0, 17, 1});
  t.key("enabled", kBool, "false", kMapped, "train.dtype: bf16").fills_auto();
  t.key("immediate_grad_update", kBool, "false", kNotNeeded,
        "Sluice accumulates gradients in fp32 as the backward produces them")
      .before({0, 17, 1}, "true");
  t.key("check_grad_overflow", kBool, "true", kChanged,
        "true skips a step with infinite gradients on stages 1 and 2; Sluice stops the run")
      .before({0, 19, 3}, "false").since({0, 17, 1});
  t.key("bf16_master_weights_and_grads", kBool, "false", kRefused,
        "master weights of Sluice are fp32").since({0, 18, 3});
  t.key("bf16_optimizer_states", kBool, "false", kChanged,
        "offload.states_dtype: bf16 moments; master weights stay fp32").since({0, 18, 3});
}

static void add_dtype_keys(KeyTable& t) {
  t.section("torch_autocast", Unknown::kIgnores, kRefused,
            "torch.autocast inside DeepSpeed; train.dtype is Sluice's only choice");
  t.key("enabled", kBool, "false", kRefused,
        "torch.autocast casts operator by operator; train.dtype casts the whole model");
  t.key("dtype", kDtype, "null", kNotNeeded, "read only with torch_autocast.enabled")
      .not_null();
  t.key("lower_precision_safe_modules", kTexts, "null", kNotNeeded,
        "read only with torch_autocast.enabled").checked();

  t.section("data_types", Unknown::kIgnores, kChanged, "dtypes beside the model's");
  t.key("grad_accum_dtype", kDtype, "null", kChanged,
        "Sluice accumulates in fp32; null in DeepSpeed is the model's dtype");
  t.key("param_dtype", kDtype, "null", kNotNeeded,
        "DeepSpeed takes only the dtype that fp16 or bf16 selects");
  t.key("buffer_dtype", kDtype, "null", kNotNeeded, "models of Sluice have no buffers");
  t.key("keep_in_fp32_modules", kTexts, "\"auto\"", kNotNeeded,
        "models of Sluice have no buffers").keeps_auto().checked().since({0, 19, 8});
}
// clang-format on

void add_precision_keys(KeyTable& table) {
  add_fp16_keys(table);
  add_bf16_keys(table);
  add_dtype_keys(table);
}

}  // namespace sluice::migrate
