// Set-up of every rank, whatever it runs: its place among the ranks and its communicators.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "configs/reader.hpp"
#include "parallel/mesh_comms.hpp"
#include "runtime/cli/setup/rank_agreement.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/watchdog.hpp"
#include "runtime/plan/search/settings.hpp"

namespace sluice {

[[nodiscard]] RunPlace place_of(const RunConfig& run, const RankEnvironment& rank);

// Groups in which the ranks of a run communicate, beside those of the axes.
[[nodiscard]] MeshNeeds mesh_needs(const RunConfig& run);

// Half the collectives' timeout: a hanging rank reports before its peers give up.
[[nodiscard]] WatchdogOptions watchdog_options(const RunConfig& run);

// This rank's groups of the configuration's mesh: GPUs over NCCL, CPUs over the host's memory or
// Gloo. Blocks until all ranks have joined. Throws ConfigError if the ranks differ in their
// configurations or in `facts` (check_agreement).
[[nodiscard]] MeshComms connect(const LoadedConfig& config, const RankEnvironment& rank,
                                const std::vector<RankFact>& facts);

// "FOLDER of TIME": names the run among other runs. FOLDER is rank 0's output.dir, so a resumed run
// has the same (run_of, offload/nvme_image.hpp). The same on every rank. Collective.
[[nodiscard]] std::string run_id(const RunConfig& run, Communicator& comm);

// Broadcasts rank 0's rates. Collective.
[[nodiscard]] MatmulRates shared_rates(const RunConfig& run, Communicator& comm);

// Throws ConfigError if libtorch's autograd runs the blocks, rows hold documents, and a GPU's
// attention operator does not take the model's heads. `train` and `plan` refuse this in the same
// words.
void check_gpu_documents(const LoadedConfig& config);
// The same if train.attention names an operator that does not take the model's attention.
void check_gpu_attention(const LoadedConfig& config);
// train.matmul: fp8 on GPUs of this compute capability, times 10; 0: not known.
void check_gpu_matmul(const LoadedConfig& config, int capability);

// Called before this process uses a GPU: a rank with pipeline links or tensor-parallel peers gets
// 32 hardware queues, the most that CUDA has, unless CUDA_DEVICE_MAX_CONNECTIONS is set. With the
// default of eight, streams of several groups share a queue, and a message waits behind another
// group's. Ranks order the messages of two groups differently, so such waits could form a circle.
void set_gpu_queues(const RunConfig& run);

// Throws ConfigError if the configuration asks for missing GPUs, or for what GPUs do not run.
void check_gpus(const LoadedConfig& config, int local_ranks);
// The same for a rank. A program that starts ranks may show each rank a card of its own.
void check_rank_gpus(const LoadedConfig& config, const RankEnvironment& rank);
// The rank's card among the visible ones: the only one, or that of its number.
[[nodiscard]] int gpu_of(const RankEnvironment& rank);
// False for a file that cannot be read or that no run wrote.
[[nodiscard]] bool is_of_a_run(const std::string& config_file);
// Throws ConfigError if the configuration asks for an output that this build cannot write, or if
// output.dir has a config.yaml that no run wrote: the run would replace it.
void check_output(const LoadedConfig& config);

}  // namespace sluice
