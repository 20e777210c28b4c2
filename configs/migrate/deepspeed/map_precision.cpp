// The model's dtype, dtypes of gradients, and the loss scale.
#include <array>
#include <cmath>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

void map_dtype(DeepSpeedMapping& mapping) {
  const std::string dtype(model_dtype(mapping.config()));
  const std::string_view decides = dtype == "bf16" ? "bf16.enabled" : "fp16.enabled";
  for (const std::string_view path : {"fp16.enabled", "bf16.enabled"}) {
    if (mapping.is_written(path) && path != decides) mapping.set(path, "train.dtype", dtype);
  }
  if (dtype != "fp32" || mapping.is_written(decides)) mapping.set(decides, "train.dtype", dtype);
}

void map_static_scale(DeepSpeedMapping& mapping) {
  mapping.set("fp16.loss_scale", "loss_scale.static",
              format_number(mapping.config().number("fp16.loss_scale")));
  for (const std::string_view name : {"initial_scale_power", "loss_scale_window", "hysteresis",
                                      "consecutive_hysteresis", "min_loss_scale"}) {
    mapping.idle("fp16." + std::string(name), "without effect: fp16.loss_scale is a static scale");
  }
}

void map_lives(DeepSpeedMapping& mapping) {
  constexpr std::string_view kLives = "fp16.hysteresis";
  constexpr std::string_view kConsecutive = "fp16.consecutive_hysteresis";
  const DeepSpeedConfig& config = mapping.config();
  if (stage_of(config) == 0) {
    mapping.set(kLives, "loss_scale.hysteresis", "1", "that stage 0 does not use");
    mapping.classify(kLives, KeyClass::kChanged,
                     format_text("loss_scale.hysteresis 1: DeepSpeed without ZeRO ignores "
                                 "hysteresis {} and halves the scale at each overflow",
                                 mapping.shown(kLives)));
    mapping.idle(kConsecutive, "without effect: DeepSpeed without ZeRO has no hysteresis");
    return;
  }
  mapping.set(kLives, "loss_scale.hysteresis", std::to_string(config.count(kLives)));
  if (mapping.is_written(kConsecutive)) {
    mapping.set(kConsecutive, "loss_scale.consecutive_hysteresis",
                config.flag(kConsecutive) ? "true" : "false");
  }
}

void map_dynamic_scale(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPower = "fp16.initial_scale_power";
  constexpr std::string_view kWindow = "fp16.loss_scale_window";
  const DeepSpeedConfig& config = mapping.config();
  if (mapping.is_written("fp16.loss_scale")) {
    mapping.set("fp16.loss_scale", "loss_scale.static", "none");
  }
  constexpr std::int64_t kLargestPower = 127;  // the largest power of two in fp32
  const std::int64_t power = config.count(kPower);
  if (power > kLargestPower || power < -kLargestPower) {
    mapping.error(kPower,
                  format_text("2^{} is no fp32 number; write a power from -127 to 127", power));
  } else {
    mapping.set(kPower, "loss_scale.initial",
                format_number(std::ldexp(1.0, static_cast<int>(power))), "as a power of two");
  }
  const std::int64_t window = config.count(kWindow);
  mapping.set(kWindow, "loss_scale.window", std::to_string(window), "steps");
  if (window < INT64_MAX) {
    mapping.set(kWindow, "loss_scale.first_window", std::to_string(window + 1),
                "steps, and one more before the first doubling");
  }
  mapping.set("fp16.min_loss_scale", "loss_scale.min",
              format_number(config.number("fp16.min_loss_scale")));
  map_lives(mapping);
}

// A dtype of gradients that is fp32 in Sluice. `of_bf16` ends the note where DeepSpeed has bf16.
void map_to_fp32(DeepSpeedMapping& mapping, std::string_view path, std::string_view verb,
                 std::string_view of_bf16) {
  const std::string_view given = text_of(mapping.config(), path);
  const std::string theirs(given.empty() ? model_dtype(mapping.config()) : given);
  if (theirs == "fp32") {
    return mapping.idle(path, format_text("Sluice {} gradients in fp32, as DeepSpeed here", verb));
  }
  mapping.classify(path, KeyClass::kChanged,
                   format_text("DeepSpeed {0} gradients in {1}, Sluice {0} them in fp32{2}", verb,
                               theirs, theirs == "bf16" ? of_bf16 : ""));
}

// Sluice accumulates in fp32, and reduces in fp32 unless the file asks for bf16.
void map_gradient_dtypes(DeepSpeedMapping& mapping) {
  constexpr std::string_view kReduced = "communication_data_type";
  map_to_fp32(mapping, "data_types.grad_accum_dtype", "accumulates", "");
  if (text_of(mapping.config(), kReduced) == "bf16") {
    return mapping.set(kReduced, "zero.reduce_dtype", "bf16", "Sluice adds in fp32");
  }
  map_to_fp32(mapping, kReduced, "reduces", "; zero.reduce_dtype: bf16 sends them in bf16");
}

void map_overflow_check(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPath = "bf16.check_grad_overflow";
  const DeepSpeedConfig& config = mapping.config();
  const std::int64_t stage = stage_of(config);
  if (model_dtype(config) != "bf16" || !config.has(kPath)) return;
  if (stage == 0 || stage == 3) {
    return mapping.idle(kPath, format_text("DeepSpeed does not use the key on stage {}", stage));
  }
  mapping.classify(kPath, KeyClass::kChanged,
                   is_on(config, kPath)
                       ? "DeepSpeed skips a step whose gradients are not finite; Sluice stops the "
                         "run at that step"
                       : "DeepSpeed updates with gradients that are not finite; Sluice stops the "
                         "run at that step");
}

}  // namespace

void map_precision(DeepSpeedMapping& mapping) {
  map_dtype(mapping);
  const DeepSpeedConfig& config = mapping.config();
  if (model_dtype(config) == "fp16") {
    config.number("fp16.loss_scale") > 0 ? map_static_scale(mapping) : map_dynamic_scale(mapping);
  }
  map_gradient_dtypes(mapping);
  map_overflow_check(mapping);
}

}  // namespace sluice::migrate
