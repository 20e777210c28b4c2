#include <nlohmann/json.hpp>

#include "configs/migrate/report.hpp"
#include "configs/migrate/write_yaml.hpp"

namespace sluice::migrate {
namespace {

using Json = nlohmann::ordered_json;

// A value of the source, which a Migration holds as JSON text.
Json value_of(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

Json key_json(const MigratedKey& key) {
  Json to = Json::object();
  for (const Setting& setting : key.to) to[setting.key] = setting.value;
  Json out{{"path", key.path},
           {"value", value_of(key.value)},
           {"class", class_name(key.kind)},
           {"to", to},
           {"note", key.note},
           {"written", key.is_written},
           {"stops", key.stops},
           {"allowed", key.is_allowed}};
  if (!key.file.empty()) out["file"] = key.file;
  if (key.place.line > 0) {
    out["line"] = key.place.line;
    out["column"] = key.place.column;
  }
  return out;
}

}  // namespace

std::string report_json(const Migration& migration) {
  Json out{{"file", migration.file}, {"source", migration.source}};
  out["keys"] = Json::array();
  for (const MigratedKey& key : migration.keys) out["keys"].push_back(key_json(key));
  out["effective"] = Json::object();
  for (const auto& [path, value] : migration.effective) out["effective"][path] = value_of(value);
  out["errors"] = Json::array();
  for (const MigrationError& error : migration.errors) out["errors"].push_back(error.text);
  out["missing"] = Json::array();
  for (const MissingValue& missing : migration.missing) {
    out["missing"].push_back({{"path", missing.path}, {"give", missing.give}});
  }
  out["memory"] = Json::array();
  for (const PlannedMemory& plan : migration.memory) {
    out["memory"].push_back({{"of", plan.of},
                             {"problem", plan.problem},
                             {"device", plan.device},
                             {"host", plan.host},
                             {"nvme", plan.nvme}});
  }
  out["commands"] = migration.commands;
  out["notes"] = migration.notes;
  out["config"] = migration.is_stopped() ? Json(nullptr) : Json(write_yaml(migration));
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sluice::migrate
