// Recomputation, tensor parallelism and output.
#include <algorithm>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kSection = "activation_checkpointing";

void map_activations(DeepSpeedMapping& mapping) {
  const std::string host = std::string(kSection) + ".cpu_checkpointing";
  if (is_on(mapping.config(), host)) {
    mapping.set(host, "recompute.mode", "full");
    mapping.set(host, "offload.activations", "host");
    mapping.classify(host, KeyClass::kChanged,
                     "recompute.mode full and offload.activations host: DeepSpeed moves what a "
                     "model's checkpoint calls save, Sluice the input of every block");
    return;
  }
  mapping.idle(host, "false is Sluice's default");
  const auto& findings = mapping.config().findings;
  const bool has_section = std::any_of(findings.begin(), findings.end(), [](const Finding& found) {
    return found.path.starts_with(kSection);
  });
  if (has_section && mapping.value("recompute.mode") == nullptr) {
    mapping.note(
        "activation_checkpointing turns no recomputation on, the model's code does: give --set "
        "recompute.mode=full if the code calls DeepSpeed's checkpoint function");
  }
}

void map_interval(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPath = "pipeline.activation_checkpoint_interval";
  if (!mapping.is_written(kPath)) return;
  const std::int64_t interval = mapping.config().count(kPath);
  if (interval == 0) return mapping.idle(kPath, "0 is no recomputation, Sluice's default");
  mapping.set(kPath, "recompute.mode", "full", "layers");
  mapping.classify(
      kPath, KeyClass::kChanged,
      interval == 1
          ? std::string("recompute.mode full: the input of each layer is saved in both")
          : format_text("recompute.mode full: DeepSpeed saves the input of one in {} layers, "
                        "Sluice the input of each layer",
                        interval));
}

// The program makes DeepSpeed's pipeline; the section says nothing about its ranks.
void note_pipeline(DeepSpeedMapping& mapping) {
  const auto& findings = mapping.config().findings;
  const bool has_section = std::any_of(findings.begin(), findings.end(), [](const Finding& found) {
    return found.path.starts_with("pipeline.");
  });
  if (!has_section || setting_of(mapping.options().set, "parallel.pipeline")) return;
  mapping.note(
      "the file has a pipeline section, but not the number of stages: give --set "
      "parallel.pipeline=STAGES, since the global batch depends on the data-parallel ranks");
}

void map_tensor(DeepSpeedMapping& mapping) {
  constexpr std::string_view kSize = "tensor_parallel.autotp_size";
  constexpr std::string_view kInner = "tensor_parallel.tensor_parallel.tp_size";
  const std::string size =
      std::to_string(std::max<std::int64_t>(1, count_of(mapping.config(), kSize).value_or(1)));
  if (mapping.is_written(kInner)) mapping.set(kInner, "parallel.tensor", size);
  if (mapping.is_written(kSize)) mapping.set(kSize, "parallel.tensor", size);
}

void map_output(DeepSpeedMapping& mapping) {
  constexpr std::string_view kEnabled = "tensorboard.enabled";
  constexpr std::string_view kPath = "tensorboard.output_path";
  if (mapping.is_written(kEnabled)) {
    mapping.set(kEnabled, "output.tensorboard",
                is_on(mapping.config(), kEnabled) ? "true" : "false");
  }
  if (!mapping.is_written(kPath) || !is_on(mapping.config(), kEnabled)) return;
  mapping.classify(kPath, KeyClass::kChanged,
                   "not carried over: Sluice writes tensorboard/ into output.dir with all files of "
                   "the run; give --set output.dir=DIR");
}

}  // namespace

void map_others(DeepSpeedMapping& mapping) {
  map_interval(mapping);
  note_pipeline(mapping);
  map_activations(mapping);
  map_tensor(mapping);
  map_output(mapping);
}

}  // namespace sluice::migrate
