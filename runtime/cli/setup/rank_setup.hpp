// What a rank needs before it runs anything, whatever it then runs: a place among the others and a
// wire to them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "configs/reader.hpp"
#include "parallel/mesh_comms.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/watchdog.hpp"
#include "runtime/plan/settings.hpp"

namespace sluice {

[[nodiscard]] RunPlace place_of(const RunConfig& run, const RankEnvironment& rank);

// Which groups beside those of the axes the ranks of a run talk in.
[[nodiscard]] MeshNeeds mesh_needs(const RunConfig& run);

// Half the collectives' time: a rank that hangs speaks before its peers give up on it.
[[nodiscard]] WatchdogOptions watchdog_options(const RunConfig& run);

// The groups of the configuration's mesh, for this rank: GPUs over NCCL, CPUs over the host's
// memory or Gloo. Blocks until all ranks have come.
[[nodiscard]] MeshComms connect(const LoadedConfig& config, const RankEnvironment& rank);

// Names the run where it keeps files beside those of other runs: the same on every rank.
// Collective.
[[nodiscard]] std::string run_id(const RunConfig& run, Communicator& comm);

// Rank 0's rates on every rank. Collective.
[[nodiscard]] MatmulRates shared_rates(const RunConfig& run, Communicator& comm);

// Throws ConfigError where activations are to leave a GPU that keeps more than units' inputs: what
// `train` refuses there and `plan` of one.
void check_gpu_activations(const LoadedConfig& config);

// What GPUs do not run so far: whether it is this value of this key; which settings of a run are
// such. `train` refuses them there, `plan` says so.
[[nodiscard]] bool is_for_cpus(std::string_view key, std::string_view value);
[[nodiscard]] std::vector<Setting> settings_for_cpus(const RunConfig& run);

// Throws ConfigError where the configuration asks for GPUs that are not there, or for what only
// CPU ranks do.
void check_gpus(const LoadedConfig& config, int local_ranks);

}  // namespace sluice
