// What the tests of launch lines share: files in memory, and a migration as lines of text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/migrate/launcher/launch_line.hpp"

namespace sluice::migrate {

using Files = std::map<std::string, std::string>;

inline TextReader reader_of(Files files) {
  return [files = std::move(files)](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
}

// "--num_gpus mapped", with "!" for a key that stops.
inline std::vector<std::string> key_lines(const Migration& migration) {
  std::vector<std::string> lines;
  for (const MigratedKey& key : migration.keys) {
    if (!key.is_written) continue;
    lines.push_back(key.path + " " + std::string(class_name(key.kind)) + (key.stops ? "!" : ""));
  }
  return lines;
}

// "launch.nproc=8"
inline std::vector<std::string> settings(const Migration& migration) {
  std::vector<std::string> lines;
  for (const ConfigLine& line : migration.lines) {
    lines.push_back(line.setting.key + "=" + line.setting.value);
  }
  return lines;
}

inline std::vector<std::string> texts(const std::vector<MigrationError>& errors) {
  std::vector<std::string> lines;
  for (const MigrationError& error : errors) lines.push_back(error.text);
  return lines;
}

}  // namespace sluice::migrate
