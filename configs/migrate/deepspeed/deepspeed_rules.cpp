#include "configs/migrate/deepspeed/deepspeed_rules.hpp"

#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_values.hpp"
#include "configs/migrate/deepspeed/deepspeed_walk.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

// Names of torch.optim and torch.optim.lr_scheduler (torch 2.11), which DeepSpeed takes besides its
// own.
constexpr std::array<std::string_view, 15> kTorchOptimizers{
    "ASGD",  "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax",    "LBFGS",
    "NAdam", "RAdam",    "RMSprop",   "Rprop",   "SGD",  "Muon",  "SparseAdam"};
constexpr std::array<std::string_view, 16> kTorchSchedulers{
    "ChainedScheduler", "ConstantLR",        "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR",         "ExponentialLR",     "LRScheduler",       "LambdaLR",
    "LinearLR",         "MultiStepLR",       "MultiplicativeLR",  "OneCycleLR",
    "PolynomialLR",     "ReduceLROnPlateau", "SequentialLR",      "StepLR"};
constexpr std::array<std::string_view, 9> kOwnOptimizers{
    "Adam", "AdamW", "Adagrad", "Lamb", "Lion", "Muon", "MuAdam", "MuAdamW", "MuSGD"};
constexpr std::array<std::string_view, 5> kOwnSchedulers{
    "WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"};
constexpr std::array<std::string_view, 3> kOneBit{"OneBitAdam", "OneBitLamb", "ZeroOneAdam"};

template <class Names>
bool holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <class Names>
std::string unknown_type(const Names& own, std::string_view type, std::string_view torch) {
  const auto near = nearest(type, {own.begin(), own.end()});
  return format_text("DeepSpeed has no {}, and {} has none; write a name of either{}",
                     in_quotes(type), torch,
                     near ? "; did you mean " + in_quotes(*near) + "?" : "");
}

// Refuses the kind of a type that Sluice lacks.
void class_of_type(DeepSpeedConfig& config, std::string_view path, std::string_view variant) {
  const DeepSpeedKey* key = find_deepspeed_key(path);
  for (Finding& finding : config.findings) {
    if (finding.path != path || holds(key->carried, variant)) continue;
    finding.kind = KeyClass::kRefused;
    finding.note = "Sluice has no " + finding.value;
  }
}

// Parameters of a type without rows that AdamW has too, for a run that uses adamw instead.
void adopt_parameters(const ParseOptions& options, DeepSpeedConfig& config) {
  for (Finding& finding : config.findings) {
    const bool is_shared = holds(
        std::array<std::string_view, 4>{"optimizer.params.lr", "optimizer.params.betas",
                                        "optimizer.params.eps", "optimizer.params.weight_decay"},
        finding.path);
    if (finding.key != nullptr || !is_shared) continue;
    const DeepSpeedKey* const row = find_deepspeed_key(finding.path, "adamw");
    HjsonNode value = value_of_json(finding.value);
    if (is_auto(value)) {
      const auto filling = options.autos.find(finding.path);
      const bool is_filled = filling != options.autos.end();
      config.autos.push_back({finding.path, finding.place, is_filled});
      value = value_of_json(is_filled ? filling->second : row->fallback);
    }
    auto read = read_value(*row, value);
    if (std::holds_alternative<Refusal>(read)) continue;
    config.values[finding.path] = {std::get<HjsonNode>(std::move(read)), true, finding.place};
    finding.key = row;
    finding.kind = row->kind;
    finding.note = row->note;
  }
}

void optimizer_type(const ParseOptions& options, DeepSpeedConfig& config) {
  const std::string_view type = text_of(config, "optimizer.type");
  if (type.empty()) return;
  const std::string variant = optimizer_variant(type);
  class_of_type(config, "optimizer.type", variant);
  if (!has_parameters("optimizer.params", variant)) adopt_parameters(options, config);
  const auto is_type = [type](std::string_view name) { return edit_distance(name, type) == 0; };
  if (std::any_of(kOneBit.begin(), kOneBit.end(), is_type)) {
    constexpr DeepSpeedVersion kRemoval{0, 19, 8};
    if (config.version < kRemoval) return;
    add_mistake(
        config, "optimizer.type",
        "DeepSpeed 0.19.8 has removed " + in_quotes(type) +
            "; choose AdamW, Adam, Lion or SGD, or name an older version with --from-version");
    return;
  }
  if (!holds(kTorchOptimizers, type) &&
      std::none_of(kOwnOptimizers.begin(), kOwnOptimizers.end(), is_type)) {
    add_mistake(config, "optimizer.type", unknown_type(kOwnOptimizers, type, "torch.optim"));
    return;
  }
  const bool tested =
      holds(std::array<std::string_view, 5>{"adam", "adamw", "adagrad", "lion", "muon"}, variant);
  if (!tested && stage_of(config) > 0 && !is_on(config, "zero_allow_untested_optimizer")) {
    add_mistake(config, "optimizer.type",
                in_quotes(type) +
                    " is not tested with ZeRO, DeepSpeed raises an error; write "
                    "zero_allow_untested_optimizer: true");
  }
  if (variant == "lamb" &&
      !(is_on(config, "fp16.enabled") && config.number("fp16.loss_scale") == 0)) {
    add_mistake(config, "optimizer.type",
                "Lamb needs fp16 with the dynamic loss scale; enable fp16 with loss_scale 0");
  }
}

void scheduler_type(const HjsonNode& root, DeepSpeedConfig& config) {
  const std::string_view type = text_of(config, "scheduler.type");
  if (type.empty()) return;
  class_of_type(config, "scheduler.type", type);
  if (!holds(kOwnSchedulers, type) && !holds(kTorchSchedulers, type)) {
    add_mistake(config, "scheduler.type",
                unknown_type(kOwnSchedulers, type, "torch.optim.lr_scheduler"));
  }
  const HjsonNode* section = root.find("scheduler");
  if (section->find("params") == nullptr) {
    add_mistake(config, "scheduler.type",
                "scheduler.params is missing, DeepSpeed raises an error; write params: {}");
  }
}

// Parameters without a default.
void required_parameters(DeepSpeedConfig& config) {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (!key.is_required || !config.has(key.path) || config.is_written(key.path)) continue;
    const auto is_key = [&key](const auto& item) { return item.path == key.path; };
    if (std::any_of(config.autos.begin(), config.autos.end(), is_key) ||
        std::any_of(config.mistakes.begin(), config.mistakes.end(), is_key)) {
      continue;
    }
    if (!key.is_of(text_of(config, "scheduler.type"))) continue;
    add_mistake(config, "scheduler.type",
                key.path + " is missing and has no default; write the key");
  }
}

void optimizer_parameters(const HjsonNode& root, DeepSpeedConfig& config) {
  const HjsonNode* section = root.find("optimizer");
  const HjsonNode* params = section != nullptr ? section->find("params") : nullptr;
  if (params != nullptr && params->find("max_grad_norm") != nullptr) {
    const auto same = [](const Mistake& m) { return m.path == "optimizer.params.max_grad_norm"; };
    std::erase_if(config.mistakes, same);
    add_mistake(config, "optimizer.params.max_grad_norm",
                "DeepSpeed takes no max_grad_norm here; write gradient_clipping at the top level");
  }
  const std::string variant = optimizer_variant(text_of(config, "optimizer.type"));
  const std::string_view device = text_of(config, "zero_optimization.offload_optimizer.device");
  const bool on_cpu = device == "cpu" || device == "nvme";
  const bool takes_amsgrad =
      variant == "adagrad" ||
      (variant != "lamb" && (on_cpu || is_on(config, "optimizer.params.torch_adam")));
  if (is_on(config, "optimizer.params.amsgrad") && !takes_amsgrad) {
    add_mistake(config, "optimizer.params.amsgrad",
                "DeepSpeed's optimizer has no AMSGrad and raises an error; write false");
  }
  if (!config.has("optimizer.params.betas")) return;
  const HjsonNode& betas = config.value("optimizer.params.betas");
  const bool valid = betas.items.size() == 2 &&
                     std::all_of(betas.items.begin(), betas.items.end(), [](const HjsonNode& b) {
                       return b.kind == Kind::kNumber && b.number >= 0 && b.number < 1;
                     });
  if (!valid) {
    add_mistake(config, "optimizer.params.betas",
                "found " + printable(to_json(betas)) +
                    "; write two numbers >= 0 and below 1, as in [0.9, 0.999]");
  }
}

// A deprecated key takes the place of a newer key; both together are an error.
struct Deprecated {
  std::string_view path;
  std::string_view newer;
};

void offload_of_deprecated(const HjsonNode& root, DeepSpeedConfig& config, const Deprecated& key) {
  const HjsonNode* zero = root.find("zero_optimization");
  const std::string_view name = key.newer.substr(key.newer.rfind('.') + 1);
  if (!config.is_written(key.path)) return;
  if (zero->find(name) != nullptr && !is_auto(*zero->find(name))) {
    add_mistake(config, key.path,
                "deprecated, and " + std::string(key.newer) +
                    " is given too, DeepSpeed raises an error; remove " + std::string(key.path));
    return;
  }
  if (!is_on(config, key.path)) return;
  const std::string prefix = std::string(key.newer) + ".";
  for (const DeepSpeedKey& row : deepspeed_keys()) {
    if (!row.path.starts_with(prefix) || (row.since && config.version < *row.since)) continue;
    config.values[row.path] = {value_of_json(row.fallback_of(config.version)), false, {}};
  }
  config.values[prefix + "device"] = {value_of_json("\"cpu\""), true,
                                      config.values.find(key.path)->second.place};
}

void deprecated_keys(const HjsonNode& root, DeepSpeedConfig& config) {
  constexpr Deprecated kOptimizer{"zero_optimization.cpu_offload",
                                  "zero_optimization.offload_optimizer"};
  constexpr Deprecated kParam{"zero_optimization.cpu_offload_param",
                              "zero_optimization.offload_param"};
  constexpr std::string_view kOld = "zero_optimization.stage3_gather_fp16_weights_on_model_save";
  constexpr std::string_view kNew = "zero_optimization.gather_16bit_weights_on_model_save";
  offload_of_deprecated(root, config, kOptimizer);
  offload_of_deprecated(root, config, kParam);
  if (!config.is_written(kOld)) return;
  if (config.is_written(kNew)) {
    add_mistake(config, kOld,
                "deprecated, and gather_16bit_weights_on_model_save is given too, DeepSpeed "
                "raises an error; remove the deprecated key");
    return;
  }
  config.values[std::string(kNew)] = config.values.find(kOld)->second;
}

// zero_optimization: true takes allgather_size.
void old_zero_form(const HjsonNode& root, DeepSpeedConfig& config) {
  const HjsonNode* zero = root.find("zero_optimization");
  const bool is_old = zero != nullptr && zero->kind == Kind::kBool;
  if (is_old && zero->boolean) {
    config.values["zero_optimization.allgather_bucket_size"] =
        config.values.find("allgather_size")->second;
    return;
  }
  for (Finding& finding : config.findings) {
    if (finding.path != "allgather_size") continue;
    finding.kind = KeyClass::kIgnored;
    finding.note = "DeepSpeed reads this key only beside zero_optimization: true";
  }
}

}  // namespace

void add_mistake(DeepSpeedConfig& config, std::string_view path, std::string what) {
  Place place{1, 1};
  std::string written(path);
  for (const Finding& finding : config.findings) {
    if (finding.path != path && (finding.key == nullptr || finding.key->path != path)) continue;
    place = finding.place;
    written = finding.path;
  }
  config.mistakes.push_back({place, written, std::move(what)});
}

std::optional<std::int64_t> count_of(const DeepSpeedConfig& config, std::string_view path) {
  const auto found = config.values.find(path);
  return found == config.values.end() ? std::nullopt : found->second.value.integer;
}

bool is_on(const DeepSpeedConfig& config, std::string_view path) {
  const auto found = config.values.find(path);
  return found != config.values.end() && found->second.value.boolean;
}

std::string_view text_of(const DeepSpeedConfig& config, std::string_view path) {
  const auto found = config.values.find(path);
  if (found == config.values.end() || found->second.value.kind != Kind::kText) return {};
  return found->second.value.text;
}

std::int64_t stage_of(const DeepSpeedConfig& config) {
  return count_of(config, "zero_optimization.stage").value_or(0);
}

std::string_view model_dtype(const DeepSpeedConfig& config) {
  return is_on(config, "fp16.enabled") ? "fp16" : is_on(config, "bf16.enabled") ? "bf16" : "fp32";
}

void apply_deepspeed_rules(const HjsonNode& root, const ParseOptions& options,
                           DeepSpeedConfig& config) {
  deprecated_keys(root, config);
  old_zero_form(root, config);
  optimizer_type(options, config);
  optimizer_parameters(root, config);
  scheduler_type(root, config);
  required_parameters(config);
  apply_section_rules(config);
  apply_batch_rule(options, config);
  mark_idle_keys(config);
}

}  // namespace sluice::migrate
