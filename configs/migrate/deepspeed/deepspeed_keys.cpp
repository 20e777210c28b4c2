#include "configs/migrate/deepspeed/deepspeed_keys.hpp"

#include <algorithm>
#include <map>

#include "configs/migrate/deepspeed/key_table.hpp"

namespace sluice::migrate {
namespace {

std::vector<DeepSpeedKey> write_table() {
  KeyTable table;
  add_general_keys(table);
  add_zero_keys(table);
  add_precision_keys(table);
  add_optimizer_keys(table);
  add_storage_keys(table);
  add_parallel_keys(table);
  add_observe_keys(table);
  add_data_keys(table);
  add_removed_keys(table);
  return table.take();
}

// Rows by both names.
using PathIndex = std::map<std::string, std::vector<const DeepSpeedKey*>, std::less<>>;

PathIndex write_index() {
  PathIndex index;
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    index[key.path].push_back(&key);
    if (key.alias.empty()) continue;
    const std::string section(section_of(key.path));
    index[section.empty() ? key.alias : section + "." + key.alias].push_back(&key);
  }
  return index;
}

}  // namespace

Row KeyTable::section(std::string_view path, Unknown unknown, KeyClass kind,
                      std::string_view note) {
  top_level();
  keys_.push_back({.path = std::string(path),
                   .type = KeyType::kSection,
                   .fallback = "{}",
                   .kind = kind,
                   .note = note,
                   .unknown = unknown});
  section_ = std::string(path) + ".";
  python_values_ = unknown == Unknown::kRaises;
  return Row(keys_.back());
}

Row KeyTable::key(std::string_view name, KeyType type, std::string_view fallback, KeyClass kind,
                  std::string_view note) {
  keys_.push_back({.path = section_ + std::string(name),
                   .type = type,
                   .fallback = fallback,
                   .kind = kind,
                   .note = note,
                   .nullable = fallback == "null",
                   .python_values = python_values_ && variants_.empty(),
                   .variants = variants_});
  return Row(keys_.back());
}

bool DeepSpeedKey::is_of(std::string_view variant) const {
  return variants.empty() || variant.empty() ||
         std::find(variants.begin(), variants.end(), variant) != variants.end();
}

Unknown DeepSpeedKey::unknown_of(const DeepSpeedVersion& version) const {
  return lenient_before && version < *lenient_before ? Unknown::kIgnores : unknown;
}

DeepSpeedKey DeepSpeedKey::with_former_rule() const {
  DeepSpeedKey row = *this;
  row.type = former_rule->type;
  row.least = former_rule->least;
  return row;
}

std::string_view DeepSpeedKey::fallback_of(const DeepSpeedVersion& version) const {
  return former && version < former->until ? former->value : fallback;
}

const std::vector<DeepSpeedKey>& deepspeed_keys() {
  static const std::vector<DeepSpeedKey> table = write_table();
  return table;
}

const DeepSpeedKey* find_deepspeed_key(std::string_view path, std::string_view variant) {
  static const PathIndex index = write_index();
  const auto rows = index.find(path);
  if (rows == index.end()) return nullptr;
  for (const DeepSpeedKey* key : rows->second) {
    if (key->is_of(variant)) return key;
  }
  return nullptr;
}

std::vector<std::string_view> names_in_section(std::string_view section, std::string_view variant,
                                               const DeepSpeedVersion& version) {
  std::vector<std::string_view> names;
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (section_of(key.path) != section || !key.is_of(variant)) continue;
    if ((key.since && version < *key.since) || (key.removed && version >= *key.removed)) continue;
    names.push_back(name_of(key.path));
    if (!key.alias.empty()) names.push_back(key.alias);
  }
  return names;
}

std::string_view section_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace sluice::migrate
