// What a rank needs before it runs anything, whatever it then runs: a place among the others and a
// wire to them.
#pragma once

#include <memory>
#include <string>

#include "configs/reader.hpp"
#include "parallel/mesh_comms.hpp"
#include "runtime/cli/run_setup.hpp"
#include "runtime/launch/rank_env.hpp"

namespace sluice {

[[nodiscard]] RunPlace place_of(const RunConfig& run, const RankEnvironment& rank);

// Which groups beside those of the axes the ranks of a run talk in.
[[nodiscard]] MeshNeeds mesh_needs(const RunConfig& run);

// The groups of the configuration's mesh, for this rank: GPUs over NCCL, CPUs over the host's
// memory or Gloo. Blocks until all ranks have come.
[[nodiscard]] MeshComms connect(const LoadedConfig& config, const RankEnvironment& rank);

// Names the run where it keeps files beside those of other runs: the same on every rank.
// Collective.
[[nodiscard]] std::string run_id(const RunConfig& run, Communicator& comm);

// Rank 0's rates on every rank. Collective.
[[nodiscard]] MatmulRates shared_rates(const RunConfig& run, Communicator& comm);

// Throws ConfigError where the configuration asks for GPUs that are not there, or for what only
// CPU ranks do.
void check_gpus(const LoadedConfig& config, int local_ranks);

}  // namespace sluice
