#include "configs/migrate/migration.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "configs/reader.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

std::string place_of(const Migration& migration, const MigratedKey* key) {
  if (key == nullptr) return migration.file;
  std::string text = key->file.empty() ? migration.file : key->file;
  if (key->place.line > 0) {
    text += ":" + std::to_string(key->place.line) + ":" + std::to_string(key->place.column);
  }
  return text + ": " + printable(key->path, 200);
}

// What the reader says of one key; empty if the value keeps to the schema's rules.
std::string reader_complaint(std::string_view key, const std::string& value) {
  try {
    (void)load_config_text("", "train:", {std::string(key) + "=" + value});
  } catch (const ConfigError& error) {
    std::string text = error.what();
    text = text.substr(0, text.find('\n'));
    std::size_t at = text.rfind(std::string(key) + ": ");
    if (at == std::string::npos) {  // an unknown section
      at = text.rfind(" " + std::string(key.substr(0, key.find('.'))) + ": ");
      if (at != std::string::npos) ++at;
    }
    return at == std::string::npos ? text : text.substr(at);
  }
  return "";
}

}  // namespace

std::string yaml_text(std::string_view text) {
  const std::string quoted = write_value({.type = KeyType::kPath}, std::string(text));
  std::string clean;
  for (const char c : quoted) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      clean += format_text("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      clean += c;
    }
  }
  return clean;
}

MigrationDraft::MigrationDraft(Migration& result) : result_(result) {
  for (std::size_t i = 0; i < result.keys.size(); ++i) places_.emplace(result.keys[i].path, i);
}

void MigrationDraft::add(MigratedKey key) {
  places_.insert_or_assign(key.path, result_.keys.size());
  result_.keys.push_back(std::move(key));
}

void MigrationDraft::set(std::string_view from, std::string_view key, std::string value,
                         std::string origin) {
  if (const std::string complaint = reader_complaint(key, value); !complaint.empty()) {
    error(from, "Sluice has no such value: " + complaint);
    return;
  }
  if (const auto found = places_.find(from); found != places_.end()) {
    std::vector<Setting>& to = result_.keys[found->second].to;
    std::erase_if(to, [&](const Setting& setting) { return setting.key == key; });
    to.push_back({std::string(key), value});
  }
  const auto line = std::find_if(result_.lines.begin(), result_.lines.end(),
                                 [&](const ConfigLine& old) { return old.setting.key == key; });
  ConfigLine entry{{std::string(key), std::move(value)}, std::move(origin), std::string(from)};
  if (line == result_.lines.end()) {
    result_.lines.push_back(std::move(entry));
  } else {
    *line = std::move(entry);
  }
}

void MigrationDraft::yield(std::string_view path, const Setting& setting, std::string_view to) {
  const auto found = places_.find(path);
  const std::string* const value = this->value(setting.key);
  if (found == places_.end() || value == nullptr || to.empty()) return;
  MigratedKey& key = result_.keys[found->second];
  const auto is_other = [&](const Setting& old) {
    return old.key == setting.key && old.value != *value;
  };
  if (std::erase_if(key.to, is_other) == 0 || !key.to.empty()) return;
  key.kind = KeyClass::kNotNeeded;
  key.note = format_text("{} gives {}: {}", to, setting.key, *value);
}

void MigrationDraft::reclass(std::string_view path, KeyClass kind, std::string note) {
  const auto found = places_.find(path);
  if (found == places_.end()) return;
  MigratedKey& key = result_.keys[found->second];
  key.kind = kind;
  key.note = std::move(note);
}

void MigrationDraft::error(std::string_view path, std::string_view what) {
  const MigratedKey* key = find(path);
  std::string text = place_of(result_, key) + ": ";
  if (key == nullptr && !path.empty()) text += std::string(path) + ": ";
  result_.errors.push_back({std::string(path), text + std::string(what)});
}

void MigrationDraft::missing(std::string path, std::string give) {
  result_.missing.push_back({std::move(path), std::move(give)});
}

void MigrationDraft::note(std::string sentence) { result_.notes.push_back(std::move(sentence)); }

const MigratedKey* MigrationDraft::find(std::string_view path) const {
  const auto found = places_.find(path);
  return found == places_.end() ? nullptr : &result_.keys[found->second];
}

const std::string* MigrationDraft::value(std::string_view key) const {
  for (const ConfigLine& line : result_.lines) {
    if (line.setting.key == key) return &line.setting.value;
  }
  return nullptr;
}

void settle_allowed(Migration& migration, const std::vector<std::string>& allowed) {
  for (MigratedKey& key : migration.keys) {
    if (!key.stops) continue;
    key.is_allowed = std::find(allowed.begin(), allowed.end(), key.path) != allowed.end();
    if (key.is_allowed) continue;
    migration.errors.push_back(
        {key.path, place_of(migration, &key) + ": " + printable(key.value, 80) +
                       " stops the migration: " + key.note + "; " + key.remedy +
                       ", or go on without its effect: --allow " + printable(key.path, 200)});
  }
  for (const std::string& name : allowed) {
    const bool used =
        std::any_of(migration.keys.begin(), migration.keys.end(),
                    [&](const auto& key) { return key.is_allowed && key.path == name; });
    if (used) continue;
    migration.errors.push_back(
        {name, "--allow " + printable(name, 200) +
                   ": no such key stops this migration; leave the flag out"});
  }
}

std::optional<std::string> setting_of(const std::vector<std::string>& settings,
                                      std::string_view key) {
  for (auto setting = settings.rbegin(); setting != settings.rend(); ++setting) {
    const std::size_t equals = setting->find('=');
    if (equals == std::string::npos || setting->substr(0, equals) != key) continue;
    std::string value = setting->substr(equals + 1);
    const std::size_t begin = value.find_first_not_of(" \t");
    if (begin == std::string::npos) return std::string();
    value = value.substr(begin, value.find_last_not_of(" \t") - begin + 1);
    return value;
  }
  return std::nullopt;
}

std::int64_t count_setting(const std::vector<std::string>& settings, std::string_view key) {
  const auto text = setting_of(settings, key);
  if (!text) return 0;
  const auto read = read_scalar(find_key(key)->rules, *text);
  const Value* const value = std::get_if<Value>(&read);
  return value != nullptr ? std::get<std::int64_t>(*value) : 0;
}

void apply_settings(Migration& migration, const std::vector<std::string>& settings) {
  MigrationDraft draft(migration);
  for (const std::string& argument : settings) {
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos || argument.substr(0, equals).find('.') == std::string::npos) {
      migration.errors.push_back(
          {"", "--set " + printable(argument) + ": expected section.key=value"});
      continue;
    }
    const std::string key = argument.substr(0, equals);
    if (const std::string complaint = reader_complaint(key, argument.substr(equals + 1));
        !complaint.empty()) {
      migration.errors.push_back({"", "--set " + printable(argument) + ": " + complaint});
      continue;
    }
    const std::string value = argument.substr(equals + 1);
    draft.set("", key, value, "--set");
    for (MigratedKey& migrated : migration.keys) {
      for (Setting& setting : migrated.to) {
        if (setting.key == key) setting.value = value;
      }
    }
  }
}

}  // namespace sluice::migrate
