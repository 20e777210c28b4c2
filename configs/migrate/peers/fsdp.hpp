// The file of `accelerate config` with distributed_type FSDP (FSDP1 and FSDP2) as a configuration
// of Sluice: sharding, offload, recomputation, precision, ranks. Batch, optimizer and schedule are
// the script's. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

struct FsdpOptions {
  std::string file{};                   // for places
  int world = 0;                        // ranks; 0: num_processes
  std::vector<std::string> settings{};  // --set: keys that the source need not give
  bool has_trainer = false;             // --trainer gives the values of the script
};

// Collects every mistake; throws nothing.
[[nodiscard]] Migration migrate_fsdp(const std::string& text, const FsdpOptions& options);

}  // namespace sluice::migrate
