#include <optional>
#include <sstream>

#include "base/error.hpp"
#include "configs/migrate/write_yaml.hpp"
#include "configs/reader.hpp"
#include "configs/validate.hpp"

namespace sluice::migrate {
namespace {

// The line of the result that a complaint names: "--set zero.stage=3: zero.stage: what".
const ConfigLine* blamed_line(const Migration& migration, const std::string& complaint) {
  for (const ConfigLine& line : migration.lines) {
    if (complaint.find(": " + line.setting.key + ": ") != std::string::npos) return &line;
  }
  return nullptr;
}

void add_complaint(Migration& migration, const std::string& complaint) {
  const ConfigLine* line = blamed_line(migration, complaint);
  std::string what = complaint;
  std::string from;
  if (line != nullptr) {
    what = complaint.substr(complaint.find(": " + line->setting.key + ": ") + 2);
    from = line->from;
  }
  MigrationDraft(migration).error(from, "the result would break a rule of Sluice: " + what);
}

}  // namespace

void check_result(Migration& migration) {
  std::vector<std::string> settings;
  for (const ConfigLine& line : migration.lines) {
    settings.push_back(line.setting.key + "=" + line.setting.value);
  }
  try {
    const LoadedConfig loaded = load_config_text(migration.file, "train:\n", settings);
    validate(loaded, migration.world > 0 ? migration.world : 1, std::nullopt, Purpose::kPlan);
  } catch (const ConfigError& error) {
    std::istringstream complaints(error.what());
    for (std::string complaint; std::getline(complaints, complaint);) {
      add_complaint(migration, complaint);
    }
  }
}

}  // namespace sluice::migrate
