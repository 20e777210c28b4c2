// The optimizer: DeepSpeed's Adam, AdamW and Lion, and torch.optim.SGD.
#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/migrate/deepspeed/deepspeed_values.hpp"
#include "configs/migrate/deepspeed/deepspeed_walk.hpp"
#include "configs/migrate/deepspeed/fill_autos.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kType = "optimizer.type";

std::string parameter(std::string_view name) { return "optimizer.params." + std::string(name); }

std::string list_of(const std::vector<double>& numbers) {
  std::string list;
  for (const double number : numbers) list += (list.empty() ? "" : ", ") + format_number(number);
  return "[" + list + "]";
}

// The program makes the optimizer. The training arguments give its values where they are known.
void without_optimizer(DeepSpeedMapping& mapping) {
  if (mapping.has_arguments()) return mapping.idle(kType, "the Trainer makes the optimizer");
  constexpr std::string_view kNote =
      "the file has no optimizer, the program makes one: Sluice's defaults hold for what --set "
      "does "
      "not give";
  const std::string_view from = mapping.is_written(kType) ? kType : "optimizer";
  if (mapping.is_written(kType)) {
    mapping.classify(kType, KeyClass::kChanged, std::string(kNote));
  } else {
    mapping.add_default(std::string(from), KeyClass::kChanged, std::string(kNote));
  }
  const std::string_view scheduler = text_of(mapping.config(), "scheduler.type");
  constexpr std::string_view kHighest = "scheduler.params.warmup_max_lr";
  const bool has_rate = scheduler == "WarmupDecayLR" ||
                        (scheduler == "WarmupLR" && !mapping.config().is_null(kHighest));
  if (has_rate || mapping.is_set("optimizer.lr")) return;
  mapping.missing(from, flags_for("optimizer.params.lr"));
}

void map_rates(DeepSpeedMapping& mapping) {
  struct Number {
    std::string_view name;
    std::string_view key;
  };
  const DeepSpeedConfig& config = mapping.config();
  for (const Number& number : {Number{"lr", "optimizer.lr"}, Number{"eps", "optimizer.eps"},
                               Number{"momentum", "optimizer.momentum"}}) {
    const std::string path = parameter(number.name);
    if (!config.has(path) || config.is_null(path)) continue;
    // Parameters of a type that Sluice lacks.
    if (number.name == "momentum" && !has_optimizer(config)) continue;
    mapping.set(path, number.key, format_number(config.number(path)));
  }
  if (config.has(parameter("betas"))) {
    mapping.set(parameter("betas"), "optimizer.betas", list_of(config.numbers(parameter("betas"))));
  }
}

void map_decay(DeepSpeedMapping& mapping) {
  const std::string path = parameter("weight_decay");
  if (!mapping.config().has(path)) return;
  const double decay = mapping.config().number(path);
  mapping.set(path, "optimizer.weight_decay", format_number(decay));
  if (decay == 0) {
    return mapping.classify(path, KeyClass::kMapped, "optimizer.weight_decay 0: nothing decays");
  }
  mapping.set(path, "optimizer.decay", "all", "of all parameters");
  mapping.classify(path, KeyClass::kChanged,
                   format_text("optimizer.weight_decay {} with optimizer.decay: all: DeepSpeed "
                               "decays vectors and biases too, Sluice's default is matrices",
                               format_number(decay)));
}

void map_adam(DeepSpeedMapping& mapping, const std::string& type) {
  const DeepSpeedConfig& config = mapping.config();
  const std::string mode = parameter("adam_w_mode");
  const std::string correction = parameter("bias_correction");
  if (mapping.is_written(correction)) {
    mapping.set(correction, "optimizer.bias_correction",
                is_on(config, correction) ? "true" : "false");
  }
  if (type == "adamw") return mapping.idle(mode, "DeepSpeed's AdamW ignores the key");
  const bool decoupled = is_on(config, mode);
  mapping.set(mode, "optimizer.decoupled", decoupled ? "true" : "false");
  mapping.classify(mode, KeyClass::kChanged,
                   decoupled ? "optimizer.decoupled true: DeepSpeed's Adam is AdamW unless the "
                               "value is false"
                             : "optimizer.decoupled false: weight decay is part of the gradient");
}

// 16-bit moments: Sluice has them in bf16.
void map_states(DeepSpeedMapping& mapping) {
  const DeepSpeedConfig& config = mapping.config();
  const std::string narrow = parameter("fp32_optimizer_states");
  const bool is_narrow = config.has(narrow) && mapping.is_written(narrow) && !is_on(config, narrow);
  const std::string_view dtype = model_dtype(config);
  for (const std::string& path : {narrow, std::string("bf16.bf16_optimizer_states")}) {
    const bool is_states =
        path == narrow ? is_narrow && dtype == "bf16" : dtype == "bf16" && is_on(config, path);
    if (!is_states) continue;
    mapping.set(path, "offload.states_dtype", "bf16");
    mapping.classify(path, KeyClass::kChanged,
                     "offload.states_dtype bf16: moments are bf16 here too, rounded "
                     "stochastically; master weights stay fp32");
  }
  if (is_narrow && dtype == "fp32") mapping.idle(narrow, "the model's dtype is fp32");
}

}  // namespace

void map_optimizer(DeepSpeedMapping& mapping) {
  const std::string type = optimizer_variant(text_of(mapping.config(), kType));
  if (type.empty()) return without_optimizer(mapping);
  if (has_optimizer(mapping.config())) {
    mapping.set(kType, "optimizer.type", type == "lion" || type == "sgd" ? type : "adamw");
  } else {
    // For a migration that --allow lets pass.
    mapping.set(kType, "optimizer.type", "adamw", "that Sluice lacks");
    mapping.classify(kType, KeyClass::kRefused,
                     format_text("Sluice has no {}; with --allow optimizer.type the run uses adamw",
                                 mapping.shown(kType)));
  }
  map_rates(mapping);
  map_decay(mapping);
  if (type == "adam" || type == "adamw") map_adam(mapping, type);
  map_states(mapping);
}

}  // namespace sluice::migrate
