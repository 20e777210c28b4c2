#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/migrate/deepspeed/deepspeed_walk.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

bool can_stop(const Finding& finding) {
  return !finding.is_default &&
         (finding.kind == KeyClass::kRefused || finding.kind == KeyClass::kRemoved);
}

std::string remedy_of(std::string_view path) {
  if (path == "optimizer.type") return "choose AdamW, Adam, Lion or SGD";
  if (path == "scheduler.type") return "choose WarmupLR, WarmupDecayLR or WarmupCosineLR";
  return "leave the key out";
}

}  // namespace

DeepSpeedMapping::DeepSpeedMapping(const DeepSpeedConfig& config, const DeepSpeedOptions& options,
                                   Migration& result)
    : config_(config), options_(options), result_(result), draft_(result) {
  add_findings(options.file);
}

// A key with a mistake has an error already, and does not stop a second time.
void DeepSpeedMapping::add_findings(const std::string& file) {
  for (const Finding& finding : config_.findings) {
    const bool is_mistaken =
        std::any_of(config_.mistakes.begin(), config_.mistakes.end(),
                    [&finding](const Mistake& mistake) { return mistake.path == finding.path; });
    draft_.add({.path = finding.path,
                .place = finding.place,
                .value = finding.value,
                .kind = finding.kind,
                .stops = can_stop(finding) && !is_mistaken,
                .note = finding.note,
                .remedy = remedy_of(finding.path)});
    if (finding.key != nullptr) written_.try_emplace(finding.key->path, finding.path);
  }
  for (const Mistake& mistake : config_.mistakes) {
    result_.errors.push_back({mistake.path, mistake.text(file)});
  }
}

std::string DeepSpeedMapping::named(std::string_view path) {
  const auto found = written_.find(path);
  if (found != written_.end()) return found->second;
  if (draft_.find(path) == nullptr) {
    const std::string variant = path.starts_with("optimizer.")
                                    ? optimizer_variant(text_of(config_, "optimizer.type"))
                                    : std::string(text_of(config_, "scheduler.type"));
    const DeepSpeedKey* const key = find_deepspeed_key(path, variant);
    draft_.add({.path = std::string(path),
                .place = {},
                .value = config_.has(path) ? to_json(config_.value(path)) : "null",
                .kind = key != nullptr ? key->kind : KeyClass::kMapped,
                .is_written = false,
                .note = key != nullptr ? std::string(key->note) : std::string()});
  }
  return std::string(path);
}

std::string DeepSpeedMapping::shown(std::string_view path) const {
  if (!config_.has(path)) return "null";
  const HjsonNode& value = config_.value(path);
  const std::string text = value.kind == HjsonNode::Kind::kText ? value.text : to_json(value);
  return printable(text);
}

void DeepSpeedMapping::set(std::string_view path, std::string_view key, std::string value,
                           std::string_view unit) {
  if (is_open(path)) return;
  const std::string name = named(path);
  std::string origin = printable(name) + " " + shown(path);
  if (!unit.empty()) origin += " " + std::string(unit);
  if (!is_written(path)) origin += ", the default of DeepSpeed " + config_.version.text();
  draft_.set(name, key, std::move(value), std::move(origin));
}

void DeepSpeedMapping::set_from(std::string_view path, std::string_view key, std::string value,
                                std::string origin) {
  draft_.set(named(path), key, std::move(value), std::move(origin));
}

void DeepSpeedMapping::classify(std::string_view path, KeyClass kind, std::string note) {
  if (!is_open(path)) draft_.reclass(named(path), kind, std::move(note));
}

void DeepSpeedMapping::idle(std::string_view path, std::string note) {
  if (is_written(path)) draft_.reclass(named(path), KeyClass::kNotNeeded, std::move(note));
}

void DeepSpeedMapping::add_default(std::string path, KeyClass kind, std::string note) {
  if (draft_.find(path) != nullptr) return draft_.reclass(path, kind, std::move(note));
  draft_.add({.path = std::move(path),
              .place = {},
              .value = "null",
              .kind = kind,
              .is_written = false,
              .note = std::move(note)});
}

void DeepSpeedMapping::error(std::string_view path, const std::string& what) {
  draft_.error(named(path), what);
}

void DeepSpeedMapping::missing(std::string_view path, std::string give) {
  draft_.missing(named(path), std::move(give));
}

void DeepSpeedMapping::note(std::string sentence) { draft_.note(std::move(sentence)); }

void DeepSpeedMapping::say_autos() {
  for (const AutoValue& value : config_.autos) {
    if (!value.is_filled) continue;
    const std::string name = named(value.path);
    const MigratedKey* const key = draft_.find(name);
    const std::string filled =
        config_.is_null(value.path) ? "what the other two sizes give" : shown(value.path);
    draft_.reclass(name, key->kind, key->note + "; \"auto\" is " + filled);
  }
}

bool DeepSpeedMapping::is_open(std::string_view path) const {
  return std::any_of(config_.autos.begin(), config_.autos.end(), [path](const AutoValue& value) {
    return value.path == path && !value.is_filled;
  });
}

bool DeepSpeedMapping::is_set(std::string_view key) const {
  return setting_of(options_.set, key).has_value();
}

std::string DeepSpeedMapping::clamped(std::string_view path, std::string_view key,
                                      std::int64_t value) {
  const Range& range = find_key(key)->rules.range;
  const auto least = static_cast<std::int64_t>(range.min);
  const auto most = static_cast<std::int64_t>(range.max);
  const std::int64_t nearest = std::clamp(value, least, most);
  if (nearest != value) {
    classify(path, KeyClass::kChanged,
             format_text("{}: {} takes {} to {}, so {} instead of {}", key, key, least, most,
                         nearest, value));
  }
  return std::to_string(nearest);
}

bool has_optimizer(const DeepSpeedConfig& config) {
  const std::string type = optimizer_variant(text_of(config, "optimizer.type"));
  return type == "adam" || type == "adamw" || type == "lion" || type == "sgd";
}

bool has_scheduler(const DeepSpeedConfig& config) {
  const std::string_view type = text_of(config, "scheduler.type");
  return type == "WarmupLR" || type == "WarmupDecayLR" || type == "WarmupCosineLR";
}

}  // namespace sluice::migrate
