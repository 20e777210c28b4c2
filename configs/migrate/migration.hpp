// The result of carrying a configuration over: every key of the source with its class, and the keys
// of Sluice with the origin of each value. Every source (DeepSpeed, Megatron-LM, FSDP, torchtitan)
// makes one Migration; report.hpp prints it, write_yaml.hpp writes the configuration. Value types;
// thread-safe for readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/key_class.hpp"

namespace sluice::migrate {

// One key of Sluice's configuration: "zero.bucket_bytes", "2000000000" (YAML).
struct Setting {
  std::string key;
  std::string value;
};

// One key of the source, or a default of the source that was not written and matters.
struct MigratedKey {
  std::string path;   // as written: "zero_optimization.stage", "--tensor-model-parallel-size"
  Place place;        // of the key
  std::string value;  // as JSON
  KeyClass kind = KeyClass::kMapped;
  bool is_written = true;   // false: a default
  bool stops = false;       // Sluice has no such thing, and the value is not the default
  bool is_allowed = false;  // stops, but --allow named the key
  std::vector<Setting> to{};
  std::string file{};  // of `place`; "": the migration's
  std::string note{};  // one sentence; of kChanged with both values
  // What the user can do about a key that stops.
  std::string remedy = "leave the key out";
};

// One key of the result.
struct ConfigLine {
  Setting setting;
  std::string origin;  // the comment: "zero_optimization.reduce_bucket_size 5e8 elements"
  std::string from;    // path of the MigratedKey; "" where no key is the origin
};

// Something that stops the migration: text is "file:line:column: path: cause; remedy".
struct MigrationError {
  std::string path;  // "" where no key is at fault
  std::string text;
};

// A value that the source leaves open ("auto") or does not have.
struct MissingValue {
  std::string path;  // "optimizer.params.lr"
  std::string give;  // the flags that give it: "--set optimizer.lr=LR, or --trainer"
};

// Peaks of a rank by the plan, in bytes.
struct PlannedMemory {
  std::string of;       // "the result", "without offload.optimizer: host"
  std::string problem;  // the reason why there is no plan; empty: there is one
  std::int64_t device = 0;
  std::int64_t host = 0;
  std::int64_t nvme = 0;
};

struct Migration {
  std::string file;    // for places: "ds_config.json"
  std::string source;  // "DeepSpeed 0.19.8", "Megatron-LM", "accelerate", "FSDP2", "torchtitan"
  std::vector<MigratedKey> keys{};                              // in the order of the source
  std::map<std::string, std::string, std::less<>> effective{};  // path -> JSON, written or not
  std::vector<MigrationError> errors{};
  std::vector<MissingValue> missing{};
  std::vector<ConfigLine> lines{};      // each key of Sluice at most once
  std::vector<std::string> commands{};  // how to start the run: "./sluice train out.yaml"
  std::vector<std::string> notes{};     // sentences that belong to no key
  std::vector<PlannedMemory> memory{};  // the result first; empty: no model is known
  int world = 0;                        // ranks of the job; 0: not known

  [[nodiscard]] bool is_stopped() const { return !errors.empty() || !missing.empty(); }
};

// Fills a Migration. Not thread-safe.
class MigrationDraft {
 public:
  explicit MigrationDraft(Migration& result);

  // Adds a key; a later `set` from `path` adds to its `to`.
  void add(MigratedKey key);
  // A key of the result. `from` is the path of a key that was added, or "". A second call for one
  // key replaces the first one's value. The value is YAML and must keep to the schema's rules: a
  // value that breaks them becomes an error at `from`'s place.
  void set(std::string_view from, std::string_view key, std::string value, std::string origin);
  // The key `path` of the source has no effect on setting.key: the key `to` gives its value. A key
  // that has the same value stays as it is.
  void yield(std::string_view path, const Setting& setting, std::string_view to);
  // Changes the class and the note of a key that was added.
  void reclass(std::string_view path, KeyClass kind, std::string note);
  // "file:line:column: path: what" at the key's place. `what` is "cause; remedy".
  void error(std::string_view path, std::string_view what);
  void missing(std::string path, std::string give);
  // A whole line about no key.
  void note(std::string sentence);

  [[nodiscard]] const MigratedKey* find(std::string_view path) const;
  // The value of a key of the result; nullptr if not set.
  [[nodiscard]] const std::string* value(std::string_view key) const;

 private:
  Migration& result_;
  std::map<std::string, std::size_t, std::less<>> places_;  // path -> index in keys
};

// A YAML scalar that means `text`: in quotes, `${` escaped.
[[nodiscard]] std::string yaml_text(std::string_view text);

// Turns keys that stop and that `allowed` names into allowed ones, and all others into errors with
// the remedy --allow. A name of `allowed` that stops nothing is an error.
void settle_allowed(Migration& migration, const std::vector<std::string>& allowed);

// Text of a setting's value in "zero.stage=2", ...; nullopt if `settings` lack the key. The last
// one holds.
[[nodiscard]] std::optional<std::string> setting_of(const std::vector<std::string>& settings,
                                                    std::string_view key);
// The same of a key whose values are counts; 0 if the settings lack a count of the key.
[[nodiscard]] std::int64_t count_setting(const std::vector<std::string>& settings,
                                         std::string_view key);

// Overrides of the command line: "zero.stage=2". Each replaces the line of its key; the origin is
// "--set". Mistakes become errors.
void apply_settings(Migration& migration, const std::vector<std::string>& settings);

}  // namespace sluice::migrate
