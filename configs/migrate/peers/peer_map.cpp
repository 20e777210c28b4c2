#include "configs/migrate/peers/peer_map.hpp"

#include <utility>

#include "base/counted.hpp"
#include "configs/run_config.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

bool is_default_here(std::string_view key, std::string_view value) {
  const Key* const found = find_key(key);
  return found != nullptr && write_value(found->rules, found->get(RunConfig{})) == value;
}

}  // namespace

PeerMap::PeerMap(Migration& result, const std::vector<std::string>& settings, DefaultOf default_of)
    : result_(result), settings_(settings), default_of_(std::move(default_of)), draft_(result) {}

void PeerMap::make_sure(std::string_view from) {
  if (draft_.find(from) != nullptr) return;
  MigratedKey key = default_of_(from);
  key.is_written = false;
  draft_.add(std::move(key));
}

void PeerMap::set(std::string_view from, std::string_view key, std::string value) {
  const MigratedKey* const found = draft_.find(from);
  if (found != nullptr) {
    return draft_.set(from, key, std::move(value), found->path + " " + found->value);
  }
  const MigratedKey fallback = default_of_(from);
  std::string origin = fallback.path + " " + fallback.value + ", the default there";
  if (is_default_here(key, value)) return set_own(key, std::move(value), std::move(origin));
  make_sure(from);
  draft_.set(from, key, std::move(value), std::move(origin));
}

void PeerMap::set_own(std::string_view key, std::string value, std::string origin) {
  draft_.set("", key, std::move(value), std::move(origin));
}

void PeerMap::changed(std::string_view from, std::string note) {
  reclass(from, KeyClass::kChanged, std::move(note));
}

void PeerMap::reclass(std::string_view from, KeyClass kind, std::string note) {
  make_sure(from);
  draft_.reclass(from, kind, std::move(note));
  mark(from, false);
}

void PeerMap::stop(std::string_view from, std::string note, const std::string& remedy) {
  reclass(from, KeyClass::kRefused, std::move(note));
  mark(from, true, remedy);
}

void PeerMap::mark(std::string_view from, bool stops, const std::string& remedy) {
  for (MigratedKey& key : result_.keys) {
    if (key.path != from) continue;
    key.stops = stops;
    if (!remedy.empty()) key.remedy = remedy;
  }
}

void PeerMap::error(std::string_view from, std::string_view what) { draft_.error(from, what); }

void PeerMap::missing(std::string_view from, std::string_view key, std::string give) {
  if (!setting_of(settings_, key)) draft_.missing(std::string(from), std::move(give));
}

void PeerMap::set_world(int given, int started) {
  result_.world = given > 0 ? given : started;
  if (given == 0 || started == 0 || given == started) return;
  draft_.error("", "the job starts " + counted(started, "rank") + ", and --world gives " +
                       std::to_string(given) + "; leave one of the two out");
}

void PeerMap::settle_conditions() {
  constexpr std::string_view kWithout = "no effect without ";
  for (MigratedKey& key : result_.keys) {
    if (key.kind != KeyClass::kIgnored || !key.note.starts_with(kWithout)) continue;
    const std::string names = key.note.substr(kWithout.size()) + " ";
    for (const MigratedKey& other : result_.keys) {
      if (!other.stops || (names.find(other.path + " ") == std::string::npos &&
                           names.find(other.path + ",") == std::string::npos)) {
        continue;
      }
      key.kind = KeyClass::kNotNeeded;
      key.note = "belongs to " + other.path + ", which stops the migration";
      break;
    }
  }
}

std::string yaml_paths(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text += (text.empty() ? "" : ", ") + yaml_text(path);
  return "[" + text + "]";
}

}  // namespace sluice::migrate
