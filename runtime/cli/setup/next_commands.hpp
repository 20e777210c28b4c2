// The lines that a run prints at its end, for its user to go on with.
#pragma once

#include <string>
#include <vector>

#include "configs/reader.hpp"
#include "runtime/data/training_data.hpp"

namespace sluice {

// Commands for the model of a saved run, with the run's paths, a line each; only commands that
// work: generate needs a tokenizer, eval validation data, and each the files of the run that are
// there now. Empty: none works.
[[nodiscard]] std::string next_commands(const LoadedConfig& config, const TrainingData& data);

// The command that continues a stopped run from its newest checkpoint, below a line that says so.
// `argv`: of the run.
[[nodiscard]] std::string resume_command(const std::vector<std::string>& argv);

}  // namespace sluice
