// Checkpoints of earlier runs beside checkpoint.dir. The start of a new run renames the earlier
// folder to <dir>.1 (.2, ...). Thread-safe.
#pragma once

#include <string>

#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

// The newest complete checkpoint of all folders <dir>.N, by the time of its save. Of a symbolic
// link, the folders lie beside its target. Skips what cannot be read. Empty: none.
[[nodiscard]] std::string newest_moved_checkpoint(FileSystem& files, const std::string& dir);

}  // namespace sluice
