// A rank of `sluice train`: one as this process, or several as its threads (launch.backend: local).
#pragma once

#include "configs/reader.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/launch/rank_env.hpp"

namespace sluice {

// --nproc, else launch.nproc, else the GPUs that are visible, else 1.
[[nodiscard]] int ranks_to_launch(const TrainCommand& command, const RunConfig& run);

// Trains to the end. This program's launcher, a program like torchrun, or srun started `rank`.
// Returns the process's exit code; throws errors. With launch.backend: local this process is the
// only one and its threads are the ranks; a failing rank is reported, and its exit code returned.
[[nodiscard]] int run_rank(const TrainCommand& command, const RankEnvironment& rank);

}  // namespace sluice
