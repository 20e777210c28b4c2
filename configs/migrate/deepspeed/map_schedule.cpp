// The scheduler: WarmupLR, WarmupDecayLR and WarmupCosineLR, with the learning rate of every step.
#include <cstdlib>
#include <optional>

#include "base/format.hpp"
#include "configs/interval.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kSchedulerType = "scheduler.type";

std::string scheduler_parameter(std::string_view name) {
  return "scheduler.params." + std::string(name);
}

void constant_rate(DeepSpeedMapping& mapping) {
  if (mapping.has_arguments())
    return mapping.idle(kSchedulerType, "the Trainer makes the scheduler");
  if (mapping.is_written(kSchedulerType)) {
    mapping.set(kSchedulerType, "schedule.type", "constant", "is no scheduler");
  } else {
    mapping.add_default("scheduler", KeyClass::kMapped,
                        "schedule.type constant: DeepSpeed without a scheduler keeps the "
                        "optimizer's lr, Sluice's default is cosine; a scheduler that the program "
                        "makes is not in the file");
    mapping.set_from("scheduler", "schedule.type", "constant",
                     "no scheduler, the default of DeepSpeed " + mapping.config().version.text());
  }
}

// For a migration that --allow lets pass.
void refused_type(DeepSpeedMapping& mapping) {
  mapping.set(kSchedulerType, "schedule.type", "constant", "that Sluice lacks");
  mapping.classify(kSchedulerType, KeyClass::kRefused,
                   format_text("Sluice has no {}; with --allow scheduler.type the learning rate is "
                               "constant",
                               mapping.shown(kSchedulerType)));
}

// The learning rate of the result: of --set, of the file, or of the training arguments.
std::optional<double> result_rate(const DeepSpeedMapping& mapping) {
  const auto& autos = mapping.options().parse.autos;
  const auto argument = autos.find("optimizer.params.lr");
  const std::string* const line = mapping.value("optimizer.lr");
  std::string text = setting_of(mapping.options().set, "optimizer.lr").value_or("");
  if (text.empty() && line != nullptr) text = *line;
  if (text.empty() && argument != autos.end()) text = argument->second;
  return text.empty() ? std::nullopt : std::optional(std::strtod(text.c_str(), nullptr));
}

// A bound of the learning rate must not exceed the rate.
void set_bound(DeepSpeedMapping& mapping, const std::string& path, std::string_view key,
               double bound) {
  const double highest = result_rate(mapping).value_or(bound);
  if (bound > highest) {
    return mapping.error(
        path, format_text("{} is above the learning rate {}, Sluice has no schedule that falls "
                          "first; lower the value, or raise the learning rate",
                          format_number(bound), format_number(highest)));
  }
  mapping.set(path, key, format_number(bound));
}

void set_share(DeepSpeedMapping& mapping, const std::string& path, std::string_view key) {
  const double share = mapping.config().number(path);
  if (share > 1) {
    return mapping.error(path,
                         format_text("{} of the learning rate is above the learning rate, Sluice "
                                     "has no such schedule; write at most 1",
                                     format_number(share)));
  }
  mapping.set(path, key, share > 0 ? write_rate(RateBound::share_of_lr(share)) : "0", "x lr");
}

// The learning rate after the warm-up.
void set_highest(DeepSpeedMapping& mapping) {
  const std::string path = scheduler_parameter("warmup_max_lr");
  constexpr std::string_view kLr = "optimizer.params.lr";
  const DeepSpeedConfig& config = mapping.config();
  if (!config.has(path)) return;
  if (config.is_null(path)) {
    return mapping.idle(path, "null is the optimizer's lr");
  }
  const double rate = config.number(path);
  if (mapping.is_written(kLr) && config.has(kLr) && config.number(kLr) != rate) {
    mapping.classify(kLr, KeyClass::kChanged,
                     format_text("optimizer.lr {}: warmup_max_lr of the scheduler takes the place "
                                 "of lr {}",
                                 format_number(rate), mapping.shown(kLr)));
  }
  mapping.set(path, "optimizer.lr", format_number(rate));
  if (mapping.is_written(path)) {
    mapping.classify(
        path, KeyClass::kMapped,
        format_text("optimizer.lr {}, in place of the optimizer's lr", format_number(rate)));
  }
}

void map_warmup(DeepSpeedMapping& mapping) {
  const DeepSpeedConfig& config = mapping.config();
  const std::string shape = scheduler_parameter("warmup_type");
  const std::string steps = scheduler_parameter("warmup_num_steps");
  const std::string lowest = scheduler_parameter("warmup_min_lr");
  const std::string share = scheduler_parameter("warmup_min_ratio");
  mapping.set(shape, "schedule.warmup", config.text(shape) == "linear" ? "linear" : "log");
  if (!mapping.is_written(shape)) {
    mapping.classify(shape, KeyClass::kMapped,
                     "schedule.warmup log: the rate grows as log(i) / log(n), not linearly");
  }
  mapping.set(steps, "schedule.warmup_steps", std::to_string(config.count(steps)), "steps");
  if (config.has(lowest)) {
    set_bound(mapping, lowest, "schedule.warmup_min_lr", config.number(lowest));
  }
  if (config.has(share)) set_share(mapping, share, "schedule.warmup_min_lr");
}

void map_fall(DeepSpeedMapping& mapping, std::string_view type) {
  const DeepSpeedConfig& config = mapping.config();
  const std::string total = scheduler_parameter("total_num_steps");
  if (type == "WarmupLR") return;
  if (const auto steps = count_of(config, total)) {
    mapping.set(total, "schedule.decay_steps", std::to_string(*steps), "steps");
  }
  if (type == "WarmupCosineLR") {
    set_share(mapping, scheduler_parameter("cos_min_ratio"), "schedule.min_lr");
  } else if (mapping.value("schedule.warmup_min_lr") != nullptr) {
    set_bound(mapping, scheduler_parameter("warmup_min_lr"), "schedule.min_lr",
              config.number(scheduler_parameter("warmup_min_lr")));
  }
}

std::string note_of(const DeepSpeedConfig& config, std::string_view shape) {
  constexpr DeepSpeedVersion kFirstStep{0, 15, 3};
  std::string note = format_text(
      "schedule.type {} with counting: deepspeed: the same learning rate at every step", shape);
  if (config.version < kFirstStep) {
    note += "; DeepSpeed before 0.15.3 takes step 1 with the optimizer's lr, Sluice does not";
  }
  return note;
}

}  // namespace

void map_schedule(DeepSpeedMapping& mapping) {
  const DeepSpeedConfig& config = mapping.config();
  const std::string_view type = text_of(config, kSchedulerType);
  if (type.empty()) return constant_rate(mapping);
  if (!has_scheduler(config)) return refused_type(mapping);
  const std::string shape = type == "WarmupLR"        ? "constant"
                            : type == "WarmupDecayLR" ? "linear"
                                                      : "cosine";
  mapping.set(kSchedulerType, "schedule.type", shape);
  mapping.set(kSchedulerType, "schedule.counting", "deepspeed");
  mapping.classify(kSchedulerType, KeyClass::kMapped, note_of(config, shape));
  set_highest(mapping);
  map_warmup(mapping);
  map_fall(mapping, type);
}

}  // namespace sluice::migrate
