// A Hugging Face folder's weights as a checkpoint of ours, and back.
#pragma once

#include <string>

#include "runtime/checkpoint/hf/hf_export.hpp"
#include "runtime/checkpoint/hf/hf_weights.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"

namespace sluice {

// Commits a checkpoint of step 0 to `dir`: one rank's file, fp32 master weights and no
// moments, which a run that resumes from it starts at zero.
// `run` gives seed and configuration. Rows that the files have nothing for are drawn by run.seed.
// Memory: one piece of a few MiB. Returns its path.
std::string import_hf(FileSystem& files, const std::string& dir, const ModelSpec& spec,
                      const HfWeights& weights, RunState run);

// Reads master weights, a piece at a time. Both must outlive the reader.
[[nodiscard]] ParamReader checkpoint_reader(Checkpoint& checkpoint);

}  // namespace sluice
