// What of checkpoint: and --resume a run is asked for, and what is looked at before it starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "configs/reader.hpp"
#include "runtime/checkpoint/io/writer_lock.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/launch/launcher.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/run/run_saver.hpp"

namespace sluice {

// A run saves by itself unless checkpoint.at_end is false and neither every nor time_limit is
// given.
[[nodiscard]] SavingOptions saving_options(const LoadedConfig& config, const std::string& resume);

// The bytes of a checkpoint's tensors on the disk. REQUIRES: as engine_options.
[[nodiscard]] std::int64_t checkpoint_bytes(const RunConfig& run, const RunPlace& place);
// "saves after the last step: 37.7 MiB in runs/a/checkpoints ...": for the dry run and the plan.
[[nodiscard]] std::string describe_saving(const LoadedConfig& config, const RunPlace& place);

// Before a process starts: throws IoError where the checkpoint to go on from is not there, or
// checkpoint.dir is another run's (resume.hpp), BudgetError where memory.host has no room to save
// from, or the disk none for a checkpoint. Warns where the disk has no room for all that are kept.
void check_saving(const LoadedConfig& config, const std::string& resume, const RunPlace& place,
                  const MemoryPlan& memory);

// Throws IoError where another run writes to output.dir or checkpoint.dir now. Makes nothing.
void check_folders_free(const LoadedConfig& config, const std::string& resume);
// Keeps others out of both as long as it lives: of the launcher, restarts included, or of rank 0
// where something else started the ranks. Looks at check_resume again, since whoever was in there
// until now may have saved. A run that nobody told where or when to save, and that does not go on
// from them, finds the checkpoints of an earlier run moved aside: checkpoints.1 and so on.
[[nodiscard]] WriterLock lock_folders(const LoadedConfig& config, const std::string& resume);

// What train.matmul: auto was in the run that this one goes on from; nullopt where there is none,
// or nothing to decide. Reads a manifest. Damage is for those to say who read the states.
[[nodiscard]] std::optional<MatmulType> resumed_matmul(const LoadedConfig& config,
                                                       const std::string& resume);

// A run that saves gets launch.timeout to do so when it is asked to stop, and counts its time limit
// from now.
void prepare_saving(const LoadedConfig& config, const std::string& resume, LaunchRequest& request);

// What to do with the model of a run that was saved: commands with the run's paths, a line each.
[[nodiscard]] std::string next_commands(const LoadedConfig& config, const TrainingData& data);

}  // namespace sluice
