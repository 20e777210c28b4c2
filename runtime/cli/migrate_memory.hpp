// The memory of a migrated run by its plan. Only for migrate_command.cpp.
#pragma once

#include "configs/migrate/migration.hpp"
#include "configs/reader.hpp"

namespace sluice {

// Plans `config`, and `config` without each setting of the migration that moves memory, so that a
// user sees the bytes that each setting saves. Fills migration.memory. REQUIRES: `config` is the
// migration's result and its model is known. Not thread-safe (planner.hpp).
void plan_migration(const LoadedConfig& config, migrate::Migration& migration);

}  // namespace sluice
