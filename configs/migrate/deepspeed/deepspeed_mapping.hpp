// The state of one migration while the map_*.cpp sources fill the result. Only for
// deepspeed_migration.cpp and map_*.cpp. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "configs/migrate/deepspeed/deepspeed_config.hpp"
#include "configs/migrate/deepspeed/deepspeed_migration.hpp"
#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

// Paths of DeepSpeed are those of the table; the mapping knows the names of the file.
class DeepSpeedMapping {
 public:
  DeepSpeedMapping(const DeepSpeedConfig& config, const DeepSpeedOptions& options,
                   Migration& result);

  [[nodiscard]] const DeepSpeedConfig& config() const { return config_; }
  [[nodiscard]] const DeepSpeedOptions& options() const { return options_; }

  // Sets a key of Sluice to the value that DeepSpeed's key decides. `unit` follows the value in the
  // origin. A default that the file does not have becomes a key of the result. An open "auto" sets
  // nothing.
  void set(std::string_view path, std::string_view key, std::string value,
           std::string_view unit = {});
  // The same with an origin of the caller.
  void set_from(std::string_view path, std::string_view key, std::string value, std::string origin);
  // Gives a key class and note; an open "auto" keeps its own. A default that the file does not have
  // becomes a key of the result.
  void classify(std::string_view path, KeyClass kind, std::string note);
  // The key has no effect in this configuration. Nothing happens to a key that the file lacks.
  void idle(std::string_view path, std::string note);
  // A default that is no single key: "scheduler", null.
  void add_default(std::string path, KeyClass kind, std::string note);
  void error(std::string_view path, const std::string& what);
  // The result has the path as the file writes it.
  void missing(std::string_view path, std::string give);
  void note(std::string sentence);
  // Adds to the note of each "auto" the value that fills the key. Called after all keys are mapped.
  void say_autos();

  [[nodiscard]] bool is_written(std::string_view path) const { return written_.contains(path); }
  // Values of the configuration as text for notes, origins and YAML.
  [[nodiscard]] std::string shown(std::string_view path) const;
  // True for an "auto" that nothing fills.
  [[nodiscard]] bool is_open(std::string_view path) const;
  // True beside training arguments, which have their own migration (launcher/).
  [[nodiscard]] bool has_arguments() const {
    return options_.parse.autos.contains("optimizer.params.lr");
  }
  // True if --set gives the key of Sluice.
  [[nodiscard]] bool is_set(std::string_view key) const;
  [[nodiscard]] const std::string* value(std::string_view key) const { return draft_.value(key); }
  // Bounds of a whole number of Sluice.
  [[nodiscard]] std::string clamped(std::string_view path, std::string_view key,
                                    std::int64_t value);

 private:
  // The path of the key in the result; adds a default.
  std::string named(std::string_view path);
  void add_findings(const std::string& file);

  const DeepSpeedConfig& config_;
  const DeepSpeedOptions& options_;
  Migration& result_;
  MigrationDraft draft_;
  std::map<std::string, std::string, std::less<>> written_;  // path in the table -> as written
};

// True for a type of optimizer or scheduler that Sluice has.
[[nodiscard]] bool has_optimizer(const DeepSpeedConfig& config);
[[nodiscard]] bool has_scheduler(const DeepSpeedConfig& config);

// Where DeepSpeed's states live, as tiers of Sluice ("device", "host", "nvme").
struct OffloadTiers {
  std::string_view optimizer = "device";
  std::string_view parameters = "device";
  std::string_view gradients = "device";
  double device_fraction = 0;
  bool optimizer_follows = false;  // off the device because the parameters are
  bool fraction_dropped = false;   // for parameters off the device

  [[nodiscard]] bool on_nvme() const { return optimizer == "nvme" || parameters == "nvme"; }
};
[[nodiscard]] OffloadTiers offload_tiers(const DeepSpeedConfig& config);

void map_batch(DeepSpeedMapping& mapping);      // batch sizes, steps, clipping, progress lines
void map_precision(DeepSpeedMapping& mapping);  // dtype and loss scale
void map_optimizer(DeepSpeedMapping& mapping);
void map_schedule(DeepSpeedMapping& mapping);
void map_zero(DeepSpeedMapping& mapping);
void map_offload(DeepSpeedMapping& mapping);
void map_others(DeepSpeedMapping& mapping);  // activations, parallelism, output

}  // namespace sluice::migrate
