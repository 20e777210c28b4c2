// What of checkpoint: and --resume a run is asked for, and what is looked at before it starts.
#pragma once

#include <optional>
#include <string>

#include "configs/reader.hpp"
#include "runtime/checkpoint/writer_lock.hpp"
#include "runtime/engine/plan_text.hpp"
#include "runtime/engine/run_saver.hpp"
#include "runtime/launch/launcher.hpp"

namespace sluice {

// A run saves by itself where checkpoint.dir, every or time_limit is given, or --resume is auto or
// a folder.
[[nodiscard]] SavingOptions saving_options(const LoadedConfig& config, const std::string& resume);

// Before a process starts: throws IoError where the checkpoint to go on from is not there, or
// checkpoint.dir is another run's (resume.hpp), BudgetError where memory.host has no room to save
// from.
void check_saving(const LoadedConfig& config, const std::string& resume, const MemoryPlan& memory);

// Throws IoError where another run writes to output.dir or checkpoint.dir now. Makes nothing.
void check_folders_free(const LoadedConfig& config, const std::string& resume);
// Keeps others out of both as long as it lives: of the launcher, restarts included, or of rank 0
// where something else started the ranks. Looks at check_resume again, since whoever was in there
// until now may have saved. checkpoint.dir is made where the run saves by itself.
[[nodiscard]] WriterLock lock_folders(const LoadedConfig& config, const std::string& resume);

// What train.matmul: auto was in the run that this one goes on from; nullopt where there is none,
// or nothing to decide. Reads a manifest. Damage is for those to say who read the states.
[[nodiscard]] std::optional<MatmulType> resumed_matmul(const LoadedConfig& config,
                                                       const std::string& resume);

// A run that saves gets launch.timeout to do so when it is asked to stop, and counts its time limit
// from now.
void prepare_saving(const LoadedConfig& config, const std::string& resume, LaunchRequest& request);

}  // namespace sluice
