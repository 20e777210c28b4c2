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

void add_complaints(Migration& migration, const ConfigError& error) {
  std::istringstream complaints(error.what());
  for (std::string complaint; std::getline(complaints, complaint);) {
    add_complaint(migration, complaint);
  }
}

void check_rules(const LoadedConfig& result, Purpose purpose, Migration& migration) {
  try {
    validate(result, migration.world > 0 ? migration.world : 1, std::nullopt, purpose);
  } catch (const ConfigError& error) {
    add_complaints(migration, error);
  }
}

// Without sizes the defaults stand in for a model that the user fills in later. With `model.from`
// the sizes are in the folder.
bool knows_model(const LoadedConfig& result) {
  if (!result.run.model.from.empty()) return false;
  return result.given("model.layers") || result.given("model.hidden") ||
         result.given("model.heads");
}

}  // namespace

void check_result(Migration& migration) {
  std::vector<std::string> settings;
  for (const ConfigLine& line : migration.lines) {
    settings.push_back(line.setting.key + "=" + line.setting.value);
  }
  std::optional<LoadedConfig> result;
  try {
    result = load_config_text(migration.file, "train:\n", settings);
  } catch (const ConfigError& error) {
    return add_complaints(migration, error);
  }
  check_rules(*result, knows_model(*result) ? Purpose::kPlan : Purpose::kPlanWithoutModel,
              migration);
}

void check_with_model(const LoadedConfig& result, Migration& migration) {
  check_rules(result, Purpose::kPlan, migration);
}

}  // namespace sluice::migrate
