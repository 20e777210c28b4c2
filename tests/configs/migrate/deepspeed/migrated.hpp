// A migration of a text, in words for expectations.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "configs/migrate/deepspeed/deepspeed_migration.hpp"
#include "configs/migrate/hjson_reader.hpp"
#include "configs/migrate/write_yaml.hpp"

namespace sluice::migrate {

using Settings = std::map<std::string, std::string>;

inline Migration migrated(const std::string& text, DeepSpeedOptions options = {}) {
  const HjsonDocument document = read_hjson(text);
  EXPECT_TRUE(document.problems.empty()) << text;
  if (options.file.empty()) options.file = "f";
  return migrate_deepspeed(document.root, options);
}

// A configuration of Adam with `keys` beside it.
inline Migration with_adam(const std::string& keys, DeepSpeedOptions options = {}) {
  return migrated("{train_micro_batch_size_per_gpu: 1, optimizer: {type: \"Adam\"}, " + keys + "}",
                  std::move(options));
}

inline Settings settings_of(const Migration& migration) {
  Settings settings;
  for (const ConfigLine& line : migration.lines) settings[line.setting.key] = line.setting.value;
  return settings;
}

// The settings whose keys start with a section's name.
inline Settings settings_of(const Migration& migration, std::string_view section) {
  Settings settings = settings_of(migration);
  std::erase_if(settings, [&](const auto& item) { return !item.first.starts_with(section); });
  return settings;
}

inline std::vector<std::string> errors_of(const Migration& migration) {
  std::vector<std::string> lines;
  for (const MigrationError& error : migration.errors) lines.push_back(error.text);
  return lines;
}

inline std::vector<std::string> missing_of(const Migration& migration) {
  std::vector<std::string> lines;
  for (const MissingValue& value : migration.missing)
    lines.push_back(value.path + ": " + value.give);
  return lines;
}

inline const MigratedKey& key_of(const Migration& migration, std::string_view path) {
  for (const MigratedKey& key : migration.keys) {
    if (key.path == path) return key;
  }
  throw Error("no key " + std::string(path));
}

inline std::string class_and_note(const Migration& migration, std::string_view path) {
  const MigratedKey& key = key_of(migration, path);
  return std::string(class_name(key.kind)) + ": " + key.note;
}

inline std::string origin_of(const Migration& migration, std::string_view key) {
  for (const ConfigLine& line : migration.lines) {
    if (line.setting.key == key) return line.origin;
  }
  return "";
}

}  // namespace sluice::migrate
