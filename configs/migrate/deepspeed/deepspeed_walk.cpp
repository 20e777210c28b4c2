#include "configs/migrate/deepspeed/deepspeed_walk.hpp"

#include <algorithm>
#include <map>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_values.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;
constexpr std::string_view kOptimizerParams = "optimizer.params";
constexpr std::string_view kSchedulerParams = "scheduler.params";

std::string joined(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
}

std::string_view parent_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

Place place_of(const HjsonNode& node) { return {node.line, node.column}; }

// The text of a "type" key; empty if there is none.
std::string type_in(const HjsonNode& root, std::string_view section) {
  const HjsonNode* node = root.find(section);
  const HjsonNode* type = node != nullptr ? node->find("type") : nullptr;
  return type != nullptr && type->kind == Kind::kText ? type->text : std::string();
}

// DeepSpeed takes a value of any type, and nothing here depends on the value.
bool is_unchecked(const DeepSpeedKey& key) {
  return (key.kind == KeyClass::kNotNeeded || key.kind == KeyClass::kIgnored) &&
         !key.python_values && !key.is_checked && key.variants.empty() &&
         key.type != KeyType::kChoice && key.type != KeyType::kDtype;
}

// Monitors are fields of one strict section in DeepSpeed.
bool is_monitor(std::string_view path) {
  return path == "tensorboard" || path == "wandb" || path == "csv_monitor" || path == "comet";
}

// The default of a version. The table's texts are parsed once.
const HjsonNode& default_of(const DeepSpeedKey& key, const DeepSpeedVersion& version) {
  static const auto nodes = [] {
    std::map<std::string_view, HjsonNode> all;
    for (const DeepSpeedKey& row : deepspeed_keys()) {
      all.try_emplace(row.fallback, value_of_json(row.fallback));
      if (row.former) all.try_emplace(row.former->value, value_of_json(row.former->value));
    }
    return all;
  }();
  return nodes.find(key.fallback_of(version))->second;
}

std::string_view first_word(std::string_view name) {
  return name.substr(0, name.find_first_of("_-"));
}

// Comments are no misspelt keys, and names with different first words mean different things unless
// a word was left out.
bool is_likely(std::string_view key, std::string_view name) {
  if (key.starts_with("_") || key.starts_with("comment")) return false;
  if (name.find(key) != std::string_view::npos) return true;
  const std::string_view word = first_word(key);
  return edit_distance(word, first_word(name)) * 2 <= std::max<std::size_t>(word.size(), 2);
}

// Reads by the rule of the version. A value that only older versions take is refused with their
// name.
std::variant<HjsonNode, Refusal> read_for(const DeepSpeedKey& key, const HjsonNode& value,
                                          const DeepSpeedVersion& version) {
  if (!key.former_rule) return read_value(key, value);
  if (version < key.former_rule->until) return read_value(key.with_former_rule(), value);
  auto read = read_value(key, value);
  auto* refusal = std::get_if<Refusal>(&read);
  if (refusal != nullptr &&
      std::holds_alternative<HjsonNode>(read_value(key.with_former_rule(), value))) {
    refusal->what += "; DeepSpeed before " + key.former_rule->until.text() +
                     " takes the value, name the version with --from-version";
  }
  return read;
}

bool is_switched_off(const HjsonNode& value) {
  const HjsonNode* enabled = value.find("enabled");
  return value.kind == Kind::kObject &&
         (value.entries.empty() ||
          (enabled != nullptr && enabled->kind == Kind::kBool && !enabled->boolean));
}

}  // namespace

std::string optimizer_variant(std::string_view type) {
  std::string small(type);
  std::transform(small.begin(), small.end(), small.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  // SGD is torch.optim's, whose names have letter case.
  if (type == "SGD") return small;
  for (const std::string_view own :
       {"adam", "adamw", "adagrad", "lamb", "lion", "muon", "muadam", "muadamw", "musgd"}) {
    if (small == own) return small;
  }
  return std::string(type);
}

bool has_parameters(std::string_view section, std::string_view variant) {
  const auto& keys = deepspeed_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const DeepSpeedKey& key) {
    return parent_of(key.path) == section && !key.variants.empty() && key.is_of(variant);
  });
}

void DeepSpeedWalk::read(const HjsonNode& root) {
  select_optimizer(root);
  section(root, "", "", Unknown::kIgnores);
  add_defaults();
}

void DeepSpeedWalk::select_optimizer(const HjsonNode& root) {
  optimizer_ = optimizer_variant(type_in(root, "optimizer"));
  scheduler_ = type_in(root, "scheduler");
}

std::string_view DeepSpeedWalk::variant_of(std::string_view section) const {
  if (section == kOptimizerParams) return optimizer_;
  if (section == kSchedulerParams) return scheduler_;
  return {};
}

// Parameters of a type without rows go to torch as they are.
bool DeepSpeedWalk::is_open(std::string_view section) const {
  if (section != kOptimizerParams && section != kSchedulerParams) return false;
  return !has_parameters(section, variant_of(section)) || variant_of(section).empty();
}

void DeepSpeedWalk::section(const HjsonNode& node, const std::string& written,
                            const std::string& path, Unknown rule) {
  for (const HjsonEntry& entry : node.entries) {
    // A key with a dot is no path.
    const bool has_row = !is_open(path) && entry.key.find('.') == std::string::npos;
    const DeepSpeedKey* key =
        has_row ? find_deepspeed_key(joined(path, entry.key), variant_of(path)) : nullptr;
    const Given given{entry, joined(written, entry.key), path, key};
    if (key == nullptr) {
      unknown(given, is_open(path) ? Unknown::kTakes : rule);
    } else if ((key->since && config_.version < *key->since) ||
               (key->removed && config_.version >= *key->removed)) {
      unknown_to_version(given, rule);
    } else {
      known(given);
    }
  }
}

Finding& DeepSpeedWalk::found(const Given& given, KeyClass kind, std::string note) {
  config_.findings.push_back({.path = given.path,
                              .place = {given.entry.line, given.entry.column},
                              .value = to_json(given.entry.value),
                              .kind = kind,
                              .note = std::move(note),
                              .key = given.key});
  return config_.findings.back();
}

void DeepSpeedWalk::mistake(const Given& given, std::string what) {
  config_.mistakes.push_back({{given.entry.line, given.entry.column}, given.path, std::move(what)});
}

std::string DeepSpeedWalk::suggestion(const Given& given) {
  constexpr int kMost = 100;
  if (++suggestions_ > kMost) return {};
  const auto names = names_in_section(given.section, variant_of(given.section), config_.version);
  const auto name = nearest(given.entry.key, names);
  return name && is_likely(given.entry.key, *name) ? "; did you mean " + in_quotes(*name) + "?"
                                                   : "";
}

void DeepSpeedWalk::unknown(const Given& given, Unknown rule) {
  const std::string section = given.section.empty() ? "DeepSpeed" : std::string(given.section);
  if (rule == Unknown::kRaises) {
    found(given, KeyClass::kRefused, "DeepSpeed raises an error for this key");
    const DeepSpeedKey* const owner = find_deepspeed_key(given.section);
    const bool was_lenient = owner != nullptr && owner->lenient_before;
    const std::string cause =
        was_lenient ? ": DeepSpeed raises an error since " + owner->lenient_before->text() +
                          ", older versions ignore the key; remove the key, or name the version "
                          "with --from-version"
                    : ", DeepSpeed raises an error; remove the key";
    mistake(given, "no key of " + section + cause + suggestion(given));
  } else if (rule == Unknown::kIgnores) {
    found(given, KeyClass::kIgnored,
          "DeepSpeed has no such key and says nothing" + suggestion(given));
  } else if (is_open(given.section)) {
    const std::string_view type = variant_of(given.section);
    found(given, type.empty() ? KeyClass::kIgnored : KeyClass::kRefused,
          type.empty() ? "DeepSpeed reads params only beside a type"
                       : "a parameter of " + std::string(type) + ", which Sluice does not have");
  } else {
    found(given, KeyClass::kNotNeeded, "DeepSpeed passes this key on unread");
  }
}

// A key of the table that this version of DeepSpeed does not have yet, or no longer has.
void DeepSpeedWalk::unknown_to_version(const Given& given, Unknown rule) {
  const DeepSpeedKey& key = *given.key;
  const bool early = key.since && config_.version < *key.since;
  if (!early && key.kind == KeyClass::kRemoved) return removed(given);
  const std::string when = early ? "DeepSpeed has this key since " + key.since->text()
                                 : "DeepSpeed has removed this key in " + key.removed->text();
  if (rule == Unknown::kRaises) {
    found(given, KeyClass::kRefused, when);
    mistake(given, when + ", the file is read as " + config_.version.text() +
                       (early ? "; name" : "; remove the key, or name") +
                       " the version of DeepSpeed with --from-version");
  } else {
    found(given, KeyClass::kIgnored,
          when + "; " + config_.version.text() + " ignores the key and says nothing");
  }
}

void DeepSpeedWalk::removed(const Given& given) {
  const DeepSpeedKey& key = *given.key;
  found(given, KeyClass::kRemoved,
        std::string(key.note) + ", removed in DeepSpeed " + key.removed->text());
  mistake(given, "DeepSpeed " + key.removed->text() + " has removed this key (" +
                     std::string(key.note) + ") and raises an error; " +
                     (is_switched_off(given.entry.value)
                          ? "the section is switched off, so nothing changes; remove the key"
                          : "remove the key, or name an older version with --from-version"));
}

// False, with the mistake, for a second name of a key that the file has under another name.
bool DeepSpeedWalk::first_of_names(const Given& given) {
  const auto [first, is_new] = given_.try_emplace(given.key->path, given.path);
  if (is_new) return true;
  if (given.key->path == "bf16") {
    found(given, KeyClass::kIgnored, "DeepSpeed reads bf16 and ignores bfloat16");
    return false;
  }
  found(given, KeyClass::kRefused, "a second name of " + first->second);
  mistake(given, "a second name of " + first->second +
                     ", DeepSpeed raises an error for two; remove one of the two keys");
  return false;
}

void DeepSpeedWalk::known(const Given& given) {
  if (!first_of_names(given)) return;
  const DeepSpeedKey& key = *given.key;
  if (key.path == "zero_optimization" && given.entry.value.kind == Kind::kBool) {
    old_zero(given);
  } else if (key.type == KeyType::kSection) {
    subsection(given);
  } else if (key.kind == KeyClass::kRemoved) {
    Finding& finding =
        found(given, KeyClass::kRemoved,
              std::string(key.note) + ", removed in DeepSpeed " + key.removed->text());
    const HjsonNode& value = given.entry.value;
    finding.is_default =
        same_value(value, default_of(key, config_.version)) || is_switched_off(value);
  } else {
    leaf(given);
  }
}

void DeepSpeedWalk::subsection(const Given& given) {
  const DeepSpeedKey& key = *given.key;
  const HjsonNode& value = given.entry.value;
  if (value.kind == Kind::kObject) {
    sections_.insert(key.path);
    if (value.entries.empty()) found(given, key.kind, "an empty section").is_default = true;
    section(value, given.path, key.path, key.unknown_of(config_.version));
  } else if (value.kind == Kind::kNull && key.nullable) {
    found(given, key.kind, "null is the section's default").is_default = true;
  } else if (is_auto(value)) {
    auto_section(given);
  } else {
    found(given, key.kind, std::string(key.note));
    const bool is_stage = key.path == "zero_optimization" && value.integer;
    mistake(given, "found " + std::string(kind_name(value.kind)) + "; write an object { } of keys" +
                       (is_stage ? ", as in { \"stage\": " + to_json(value) + " }" : "") +
                       (key.nullable ? ", or null" : ""));
  }
}

// zero_optimization: true, the form before stages.
void DeepSpeedWalk::old_zero(const Given& given) {
  sections_.insert("zero_optimization");
  const bool on = given.entry.value.boolean;
  found(
      given, KeyClass::kMapped,
      on ? "old form: stage 1, with allgather_size as allgather_bucket_size" : "old form: stage 0");
  HjsonNode stage = value_of_json(on ? "1" : "0");
  config_.values["zero_optimization.stage"] = {stage, true, place_of(given.entry.value)};
}

void DeepSpeedWalk::leaf(const Given& given) {
  const DeepSpeedKey& key = *given.key;
  const HjsonNode& value = given.entry.value;
  const bool auto_is_value =
      key.keeps_auto || key.type == KeyType::kIntOrAuto ||
      std::find(key.choices.begin(), key.choices.end(), "auto") != key.choices.end();
  if (is_auto(value) && !auto_is_value) return auto_leaf(given);
  auto read = read_for(key, value, config_.version);
  if (auto* refusal = std::get_if<Refusal>(&read)) {
    found(given, key.kind, std::string(key.note));
    if (!is_unchecked(key)) return mistake(given, std::move(refusal->what));
    config_.values[key.path] = {value, true, place_of(value)};
    return;
  }
  HjsonNode& node = std::get<HjsonNode>(read);
  node.line = value.line;
  node.column = value.column;
  Finding& finding = found(given, key.kind, std::string(key.note));
  finding.is_default = same_value(node, default_of(key, config_.version));
  config_.values[key.path] = {std::move(node), true, place_of(value)};
}

void DeepSpeedWalk::auto_leaf(const Given& given) {
  const DeepSpeedKey& key = *given.key;
  const auto filling = options_.autos.find(key.path);
  const bool fills = key.fills_auto || filling != options_.autos.end();
  if (fills) {
    config_.autos.push_back(
        {key.path, {given.entry.line, given.entry.column}, filling != options_.autos.end()});
  }
  if (filling != options_.autos.end()) {
    auto read = read_value(key, value_of_json(filling->second));
    found(given, key.kind, std::string(key.note));
    if (auto* refusal = std::get_if<Refusal>(&read)) {
      return mistake(given, "\"auto\" is filled, but " + refusal->what);
    }
    config_.values[key.path] = {std::move(std::get<HjsonNode>(read)), true,
                                place_of(given.entry.value)};
  } else if (fills) {
    found(given, key.kind, std::string(key.note) + "; Hugging Face's Trainer fills \"auto\"");
  } else if (key.python_values) {
    found(
        given, key.kind,
        "DeepSpeed reads \"auto\" as the default " + std::string(key.fallback_of(config_.version)))
        .is_default = true;
  } else {
    found(given, key.kind, std::string(key.note));
    if (is_unchecked(key)) {
      config_.values[key.path] = {given.entry.value, true, place_of(given.entry.value)};
      return;
    }
    mistake(given,
            "\"auto\" is no value of this key, nothing fills it; write a value, or remove "
            "the key");
  }
}

void DeepSpeedWalk::auto_section(const Given& given) {
  const DeepSpeedKey* parent = find_deepspeed_key(given.section);
  if (is_monitor(given.key->path) ||
      (!given.section.empty() && parent != nullptr && parent->unknown == Unknown::kRaises)) {
    found(given, given.key->kind, "DeepSpeed reads \"auto\" as the section's default").is_default =
        true;
    return;
  }
  found(given, given.key->kind, std::string(given.key->note));
  mistake(given,
          "\"auto\" is no value of a section; write an object { } of keys, or remove the "
          "key");
}

// Defaults of all keys whose section exists: by the file, or because the default of the section is
// no null.
void DeepSpeedWalk::add_defaults() {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (key.type == KeyType::kSection || key.kind == KeyClass::kRemoved) continue;
    if ((key.since && config_.version < *key.since) ||
        (key.removed && config_.version >= *key.removed)) {
      continue;
    }
    const std::string_view section = parent_of(key.path);
    if (!key.variants.empty() && (variant_of(section).empty() || !key.is_of(variant_of(section)))) {
      continue;
    }
    const DeepSpeedKey* owner = find_deepspeed_key(section);
    const bool optional =
        owner != nullptr && owner->nullable && owner->path.find('.') != std::string::npos;
    if (optional && owner->path != "zero_optimization.leaf_module" &&
        !sections_.contains(owner->path)) {
      continue;
    }
    config_.values.try_emplace(key.path,
                               EffectiveValue{default_of(key, config_.version), false, {}});
  }
}

}  // namespace sluice::migrate
