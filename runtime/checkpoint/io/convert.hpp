// A checkpoint written again: in another number of files, with another type of moments, or none.
// No run needs it (any layout resumes from any); it makes one smaller, or one file to carry away.
#pragma once

#include <optional>
#include <string>

#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"

namespace sluice {

struct ConvertOptions {
  int files = 1;                         // of equal shares of the elements
  std::optional<TensorDType> moments{};  // F32 or BF16 (to nearest); none: as they are
  bool weights_only = false;             // a run that resumes starts moments at zero
};

// Commits a checkpoint of the same step and run state to `dir`, which is made where it is missing.
// Every block read is compared with its checksum. Memory: some 25 MiB and the manifests. Returns
// its path. Throws Error for files < 1, CheckpointError, IoError; nothing is left of it then.
std::string convert(FileSystem& files, Checkpoint& from, const std::string& dir,
                    const ConvertOptions& options);

}  // namespace sluice
