// A rank of `sluice train`: one as this process, or several as its threads (launch.backend: local).
#pragma once

#include "configs/reader.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/launch/rank_env.hpp"

namespace sluice {

// --nproc, else launch.nproc, else the GPUs that are visible, else 1.
[[nodiscard]] int ranks_to_launch(const TrainCommand& command, const RunConfig& run);

// Trains to the end. `rank` was started by this program's launcher, by torchrun and its like, or by
// srun. Returns the process's exit code; throws what failed. With launch.backend: local this
// process is the only one and its threads are the ranks; what fails there is reported by rank and
// its exit code returned.
[[nodiscard]] int run_rank(const TrainCommand& command, const RankEnvironment& rank);

}  // namespace sluice
