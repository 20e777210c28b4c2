// Rewrites a checkpoint with another number of files, another dtype of moments, or no moments. No
// run needs this, because every layout resumes from every layout. It makes a checkpoint smaller, or
// one file.
#pragma once

#include <optional>
#include <string>

#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"

namespace sluice {

struct ConvertOptions {
  int files = 1;                         // with equal shares of the elements
  std::optional<TensorDType> moments{};  // F32 or BF16 (rounded to nearest); nullopt: unchanged
  bool weights_only = false;             // without moments; a resumed run starts them at zero
};

// Commits a checkpoint of the same step and run state to `dir`, which is created if missing, and
// returns its path. Compares every block with its checksum. Needs about 25 MiB and the manifests.
// Throws Error for files < 1, CheckpointError and IoError, and then leaves no file behind.
std::string convert(FileSystem& files, Checkpoint& from, const std::string& dir,
                    const ConvertOptions& options);

}  // namespace sluice
