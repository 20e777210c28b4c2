// What of checkpoint: and --resume a run is asked for, and what is looked at before it starts.
#pragma once

#include <string>

#include "configs/reader.hpp"
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

// A run that saves gets launch.timeout to do so when it is asked to stop, and counts its time limit
// from now.
void prepare_saving(const LoadedConfig& config, const std::string& resume, LaunchRequest& request);

}  // namespace sluice
