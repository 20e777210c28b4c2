// A DeepSpeed configuration with the sources beside it: launch line, accelerate's file, training
// arguments. Only for migrate.cpp.
#pragma once

#include "configs/migrate/migrate.hpp"

namespace sluice::migrate {

// Throws IoError for a file that cannot be read, ConfigError for a request without a configuration.
[[nodiscard]] Migration migrate_deepspeed_job(const MigrationRequest& request);

// The file's text, at most kMaxHjsonBytes + 1 bytes. Throws IoError with `flag` and the path.
[[nodiscard]] std::string read_source(const std::string& flag, const std::string& path);

}  // namespace sluice::migrate
