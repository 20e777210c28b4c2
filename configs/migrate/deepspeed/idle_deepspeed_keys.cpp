// Findings of keys that DeepSpeed does not use because of another key's value. Such a key stops no
// migration.
#include <array>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"

namespace sluice::migrate {
namespace {

// A section that a flag of its own switches off.
struct Gate {
  std::string_view section;
  std::string_view flag;
};

constexpr std::array kGates{
    Gate{"fp16", "fp16.enabled"},
    Gate{"bf16", "bf16.enabled"},
    Gate{"torch_autocast", "torch_autocast.enabled"},
    Gate{"expert_parallel", "expert_parallel.enabled"},
    Gate{"hybrid_engine", "hybrid_engine.enabled"},
    Gate{"tensorboard", "tensorboard.enabled"},
    Gate{"data_efficiency", "data_efficiency.enabled"},
    Gate{"data_efficiency.data_sampling", "data_efficiency.data_sampling.enabled"},
    Gate{"data_efficiency.data_routing", "data_efficiency.data_routing.enabled"},
};

// Keys that DeepSpeed reads on ZeRO stage 3 only, as they are or as the start of a path.
constexpr std::array<std::string_view, 5> kStage3{
    "zero_optimization.offload_param.", "zero_optimization.prefetch_bucket_size",
    "zero_optimization.param_persistence_threshold", "zero_optimization.sub_group_size",
    "zero_optimization.offload_optimizer.super_offload"};

bool awaits_auto(const DeepSpeedConfig& config, std::string_view path) {
  for (const AutoValue& value : config.autos) {
    if (value.path == path && !value.is_filled) return true;
  }
  return false;
}

void mark(Finding& finding, KeyClass kind, std::string note) {
  finding.kind = kind;
  finding.note = std::move(note);
}

void mark_gated(DeepSpeedConfig& config, const Gate& gate) {
  if (!config.has(gate.flag) || is_on(config, gate.flag)) return;
  if (awaits_auto(config, gate.flag)) return;
  for (Finding& finding : config.findings) {
    if (finding.key == nullptr || finding.kind == KeyClass::kIgnored) continue;
    const std::string& path = finding.key->path;
    if (!path.starts_with(std::string(gate.section) + ".") || path == gate.flag) continue;
    mark(finding, KeyClass::kNotNeeded, "without effect: " + std::string(gate.flag) + " is false");
  }
}

void mark_stage(DeepSpeedConfig& config, Finding& finding) {
  const std::int64_t stage = count_of(config, "zero_optimization.stage").value_or(0);
  const std::string& path = finding.key->path;
  if (path == "zero_optimization.offload_optimizer.device" && (stage == 1 || stage == 2) &&
      text_of(config, path) == "nvme") {
    mark(finding, KeyClass::kChanged,
         format_text("offload.optimizer: host, as DeepSpeed reads nvme as cpu on stage {}", stage));
  }
  if (stage == 0 && path.starts_with("zero_optimization.") && path != "zero_optimization.stage" &&
      finding.kind != KeyClass::kRemoved) {
    return mark(finding, KeyClass::kIgnored, "DeepSpeed does not use ZeRO on stage 0");
  }
  for (const std::string_view key : kStage3) {
    if (stage == 3 || !path.starts_with(key)) continue;
    mark(finding, KeyClass::kIgnored,
         format_text("DeepSpeed uses this key on ZeRO stage 3 only, the stage is {}", stage));
  }
}

}  // namespace

void mark_idle_keys(DeepSpeedConfig& config) {
  for (const Gate& gate : kGates) mark_gated(config, gate);
  for (Finding& finding : config.findings) {
    if (finding.key != nullptr) mark_stage(config, finding);
  }
}

}  // namespace sluice::migrate
