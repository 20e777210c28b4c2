#include "configs/migrate/deepspeed/deepspeed_migration.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/migrate/deepspeed/fill_autos.hpp"

namespace sluice::migrate {
namespace {

// The model's sizes: of the caller, or of a setting.
DeepSpeedOptions with_sizes(DeepSpeedOptions options) {
  if (options.hidden == 0) options.hidden = count_setting(options.set, "model.hidden");
  if (options.layers == 0) options.layers = count_setting(options.set, "model.layers");
  return options;
}

// Ranks that a complete triple of batch sizes fits; 0 if there are none.
int implied_world(const DeepSpeedConfig& config, std::int64_t model_ranks) {
  const BatchSizes& batch = config.batch;
  if (!batch.global || !batch.micro || !batch.accumulation) return 0;
  std::int64_t product = 0;
  if (__builtin_mul_overflow(*batch.micro, *batch.accumulation, &product)) return 0;
  if (*batch.global % product != 0) return 0;
  const std::int64_t sequence = count_of(config, "sequence_parallel_size").value_or(1);
  std::int64_t world = 0;
  if (__builtin_mul_overflow(*batch.global / product, sequence, &world)) return 0;
  if (__builtin_mul_overflow(world, model_ranks, &world)) return 0;
  return world <= std::numeric_limits<int>::max() ? static_cast<int>(world) : 0;
}

// Pipeline x tensor ranks of the settings. DeepSpeed counts the ranks of autotp_size itself.
std::int64_t model_ranks(const HjsonNode& root, const std::vector<std::string>& settings) {
  static constexpr std::int64_t kMost = 1 << 20;
  const auto ranks = [&settings](std::string_view key) {
    return std::clamp<std::int64_t>(count_setting(settings, key), 1, kMost);
  };
  const bool has_autotp = root.find("tensor_parallel") != nullptr;
  return ranks("parallel.pipeline") * (has_autotp ? 1 : ranks("parallel.tensor"));
}

bool is_triple(const BatchSizes& batch) {
  return batch.global && batch.micro && batch.accumulation;
}

// Parses again with the world that the batch sizes imply.
DeepSpeedConfig parse(const HjsonNode& root, ParseOptions& options, Migration& result) {
  DeepSpeedConfig config = parse_deepspeed(root, options);
  if (options.world > 0 || !is_triple(config.batch)) return config;
  options.world = implied_world(config, options.model_ranks);
  if (options.world == 0) {
    add_mistake(config, "train_batch_size",
                format_text("{} is no multiple of micro batch {} x accumulation {}; change one of "
                            "the sizes",
                            config.batch.global.value_or(0), config.batch.micro.value_or(0),
                            config.batch.accumulation.value_or(0)));
    return config;
  }
  result.notes.push_back(format_text(
      "the three batch sizes fit {0} ranks, the result is for --world {0}", options.world));
  return parse_deepspeed(root, options);
}

bool is_parameter_of_lacking_type(const DeepSpeedConfig& config, std::string_view path) {
  return (path.starts_with("optimizer.params.") && !has_optimizer(config)) ||
         (path.starts_with("scheduler.params.") && !has_scheduler(config));
}

// One switch stops for all of data_efficiency.
bool is_part_of_data_efficiency(const DeepSpeedConfig& config, std::string_view path) {
  constexpr std::string_view kSwitch = "data_efficiency.enabled";
  return path.starts_with("data_efficiency.") && path != kSwitch && is_on(config, kSwitch);
}

// 16-bit moments: Sluice has them in bf16 alone.
void settle_states(const DeepSpeedConfig& config, Finding& finding) {
  const std::string& path = finding.key->path;
  const bool is_states =
      path == "bf16.bf16_optimizer_states" || path == "optimizer.params.fp32_optimizer_states";
  if (!is_states || finding.is_default || finding.kind != KeyClass::kChanged) return;
  if (model_dtype(config) != "fp16") return;
  finding.kind = KeyClass::kRefused;
  finding.note = "Sluice has bf16 moments, and no fp16 moments";
}

// Before keys are added: what stops a migration in this configuration, and what does not.
void settle_classes(DeepSpeedConfig& config) {
  for (Finding& finding : config.findings) {
    // The type stops, not each of its parameters.
    if (finding.kind == KeyClass::kRefused && (is_parameter_of_lacking_type(config, finding.path) ||
                                               is_part_of_data_efficiency(config, finding.path))) {
      finding.is_default = true;
    }
    if (finding.key == nullptr || finding.kind == KeyClass::kIgnored) continue;
    const bool is_section = finding.key->type == KeyType::kSection;
    if (is_section && finding.is_default) finding.kind = KeyClass::kNotNeeded;
    settle_states(config, finding);
  }
}

void add_effective(const DeepSpeedConfig& config, Migration& result) {
  for (const auto& [path, value] : config.values) result.effective[path] = to_json(value.value);
  const auto add = [&result](const char* path, const std::optional<std::int64_t>& size) {
    if (size) result.effective[path] = std::to_string(*size);
  };
  add("train_batch_size", config.batch.global);
  add("train_micro_batch_size_per_gpu", config.batch.micro);
  add("gradient_accumulation_steps", config.batch.accumulation);
}

void ask_for_autos(DeepSpeedMapping& mapping) {
  for (const AutoValue& value : mapping.config().autos) {
    if (value.is_filled) continue;
    const std::string& share = mapping.options().warmup_share;
    if (value.path == "scheduler.params.warmup_num_steps" && !share.empty()) {
      mapping.set_from(value.path, "schedule.warmup_steps", share, "warmup_ratio of the arguments");
    } else {
      mapping.missing(value.path, flags_for(value.path));
    }
  }
}

}  // namespace

Migration migrate_deepspeed(const HjsonNode& root, const DeepSpeedOptions& given) {
  DeepSpeedOptions options = with_sizes(given);
  ParseOptions filled = fill_autos(root, options);
  filled.model_ranks = model_ranks(root, options.set);
  Migration result;
  result.file = options.file;
  result.source = "DeepSpeed " + filled.version.text();
  DeepSpeedConfig config = parse(root, filled, result);
  result.world = filled.world;
  settle_classes(config);
  add_effective(config, result);
  DeepSpeedMapping mapping(config, options, result);
  ask_for_autos(mapping);
  // The values of a file with mistakes are not those that DeepSpeed would use.
  if (!config.mistakes.empty()) return result;
  map_batch(mapping);
  map_precision(mapping);
  map_zero(mapping);
  map_offload(mapping);
  map_others(mapping);
  map_optimizer(mapping);
  map_schedule(mapping);
  mapping.say_autos();
  return result;
}

}  // namespace sluice::migrate
