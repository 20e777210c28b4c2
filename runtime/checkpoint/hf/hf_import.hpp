// Makes a checkpoint from the weights of a Hugging Face folder, and reads weights for an export.
#pragma once

#include <string>

#include "runtime/checkpoint/hf/hf_export.hpp"
#include "runtime/checkpoint/hf/hf_weights.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"

namespace sluice {

// Commits a checkpoint of step 0 to `dir` and returns its path. The checkpoint has one file with
// fp32 master weights and no moments; a resumed run starts moments at zero. `run` gives seed and
// configuration. Rows that the files do not contain are initialised with run.seed. Needs a few MiB.
std::string import_hf(FileSystem& files, const std::string& dir, const ModelSpec& spec,
                      const HfWeights& weights, RunState run);

// A reader of master weights. `checkpoint` must outlive the reader.
[[nodiscard]] ParamReader checkpoint_reader(Checkpoint& checkpoint);

}  // namespace sluice
