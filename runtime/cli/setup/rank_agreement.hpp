// Whether all ranks of a job have the same configuration. A program other than this launcher may
// start each rank with its own file, arguments and build.
#pragma once

#include <string>
#include <vector>

#include "configs/reader.hpp"
#include "parallel/comm/communicator.hpp"

namespace sluice {

// What must be equal on all ranks besides the configuration: "--resume", "auto".
struct RankFact {
  std::string name;
  std::string value;
};

// Every key must be equal, so a new key is compared. Exceptions:
// - Paths: hosts may mount folders differently. Whether a path is set must be equal.
// - launch.nproc, launch.threads, launch.max_restarts: they concern one host or its launcher.
// The program's version and `more` must be equal too. Throws the same ConfigError on every rank,
// each with the place of the key on its own rank. Collective. Equal ranks exchange only a digest.
void check_agreement(const LoadedConfig& config, const std::vector<RankFact>& more,
                     Communicator& world);

}  // namespace sluice
