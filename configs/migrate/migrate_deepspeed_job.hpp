// A DeepSpeed configuration with the sources beside it: launch line, accelerate's file, training
// arguments. Only for migrate.cpp.
#pragma once

#include "configs/migrate/launcher/training_arguments.hpp"
#include "configs/migrate/migrate.hpp"

namespace sluice::migrate {

// Training arguments of --trainer: a file, or a command line.
[[nodiscard]] TrainerValues trainer_values(const std::string& argument);
// Adds the keys, lines, errors and notes of a source beside the configuration. A default there does
// not replace a key of `result`.
void absorb(Migration beside, Migration& result);

// Throws IoError for a file that cannot be read, ConfigError for a request without a configuration.
[[nodiscard]] Migration migrate_deepspeed_job(const MigrationRequest& request);

// The file's text, at most kMaxHjsonBytes + 1 bytes. Throws IoError with `flag` and the path.
[[nodiscard]] std::string read_source(const std::string& flag, const std::string& path);

}  // namespace sluice::migrate
