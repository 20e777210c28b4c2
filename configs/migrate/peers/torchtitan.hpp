// torchtitan's TOML file as a configuration of Sluice. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

struct TorchtitanOptions {
  std::string file{};                   // for places
  int world = 0;                        // ranks; 0: not known
  bool has_model = false;               // --model gives the sizes
  std::vector<std::string> settings{};  // --set: keys that the source need not give
};

// Collects every mistake; throws nothing.
[[nodiscard]] Migration migrate_torchtitan(std::string_view text, const TorchtitanOptions& options);

}  // namespace sluice::migrate
