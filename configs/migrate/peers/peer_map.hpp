// What the mappings of all peers share: keys of the result with their origin, defaults of the
// source that matter, values that have no counterpart. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

class PeerMap {
 public:
  // `default_of` makes the key of a default that is not written. `settings` are those of --set.
  using DefaultOf = std::function<MigratedKey(std::string_view path)>;
  PeerMap(Migration& result, const std::vector<std::string>& settings, DefaultOf default_of);

  [[nodiscard]] MigrationDraft& draft() { return draft_; }
  [[nodiscard]] Migration& result() { return result_; }

  // A key of the result from a key of the source. A default of the source that is not written
  // becomes a key of the report where it differs from Sluice's default.
  void set(std::string_view from, std::string_view key, std::string value);
  // A key of the result that no single key of the source gives.
  void set_own(std::string_view key, std::string value, std::string origin);
  // The class and the note of a key whose meaning differs.
  void changed(std::string_view from, std::string note);
  // The key has no effect on this run, or none here.
  void reclass(std::string_view from, KeyClass kind, std::string note);
  // Sluice has no such thing: the key stops the migration unless --allow names it. A `remedy` is
  // needed where the key cannot be left out, because a default of the source stops.
  void stop(std::string_view from, std::string note, const std::string& remedy = "");
  void error(std::string_view from, std::string_view what);
  // Asks for `key` of Sluice unless --set gives it.
  void missing(std::string_view from, std::string_view key, std::string give);
  // Ranks of the job: `given` by --world or `started` by the source; 0 is not known.
  void set_world(int given, int started);
  // A key that is ignored without another one belongs to that one where it stops the migration.
  void settle_conditions();

 private:
  void make_sure(std::string_view from);
  void mark(std::string_view from, bool stops, const std::string& remedy = "");

  Migration& result_;
  const std::vector<std::string>& settings_;
  DefaultOf default_of_;
  MigrationDraft draft_;
};

// A list of texts as YAML: ["a", "b"].
[[nodiscard]] std::string yaml_paths(const std::vector<std::string>& paths);

}  // namespace sluice::migrate
