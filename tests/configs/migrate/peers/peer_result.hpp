// A migration of a peer, in words for expectations.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

// Errors and open values, a line each.
inline std::string problems_of(const Migration& migration) {
  std::string text;
  for (const MigrationError& error : migration.errors) {
    text += (text.empty() ? "" : "\n") + error.text;
  }
  for (const MissingValue& value : migration.missing) {
    text += (text.empty() ? "" : "\n") + value.path + ": " + value.give;
  }
  return text;
}

// Every key of the result.
inline std::map<std::string, std::string> lines_of(const Migration& migration) {
  std::map<std::string, std::string> lines;
  for (const ConfigLine& line : migration.lines) lines[line.setting.key] = line.setting.value;
  return lines;
}

inline MigratedKey key_of(const Migration& migration, const std::string& path) {
  for (const MigratedKey& key : migration.keys) {
    if (key.path == path) return key;
  }
  ADD_FAILURE() << "no key " << path;
  return {};
}

}  // namespace sluice::migrate
