// From a DeepSpeed configuration to Sluice's: every key of the file with its class, the defaults
// that matter, the lines of the result, and what the file leaves open. Pure function; thread-safe.
//
//     HjsonDocument document = read_hjson(text);
//     Migration migration = migrate_deepspeed(document.root, {.file = "ds.json"});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/migrate/deepspeed/deepspeed_config.hpp"
#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

struct DeepSpeedOptions {
  std::string file{};  // for places
  // Version, world, and values of "auto". With training arguments, `autos` has all of
  // trainer_autos(): steps, optimizer and scheduler that the file lacks are then map_trainer()'s.
  ParseOptions parse{};
  std::int64_t hidden = 0;  // width of the model; 0: not known
  std::int64_t layers = 0;  // blocks of the model; 0: not known
  // Settings of Sluice's keys, "optimizer.lr=3e-4", from left to right. A setting also fills an
  // "auto" of the key that maps to the setting's key. The caller applies the settings to the
  // result (apply_settings).
  std::vector<std::string> set{};
  // Of the training arguments, "3%": schedule.warmup_steps for an "auto" that no number fills.
  std::string warmup_share{};
};

// REQUIRES: `root` is an object. Mistakes of the file, and combinations that Sluice lacks, become
// errors of the result; nothing is thrown. The caller settles keys that stop (settle_allowed).
[[nodiscard]] Migration migrate_deepspeed(const HjsonNode& root, const DeepSpeedOptions& options);

}  // namespace sluice::migrate
