// Locks the folders that a run (output.dir, checkpoint.dir) or a command (its output) writes. Two
// writers of one folder would treat each other's unfinished saves as left by a crash, and would
// purge each other's checkpoints.
//
// sluice-run.lock in the folder (base/posix/lock_file.hpp) is held by one process of the run: the
// launcher, or rank 0 if another program started the ranks. Readers take no lock. If the file
// system has no locks, or no file can be created in the folder, the log has a warning and the
// folder is not locked; a later write reports the cause.
//
// A killed process holds its locks until its memory is free, so the constructor waits `patience`
// before it refuses. Not thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/posix/lock_file.hpp"

namespace sluice {

inline constexpr char kWriterLockName[] = "sluice-run.lock";

struct WrittenFolder {
  std::string key;  // the setting that names the folder: "checkpoint.dir", "-o"
  std::string path;
};

// Throws IoError, as WriterLock does, if another process writes to one of the folders now. Creates
// no file.
void check_not_written(const std::vector<WrittenFolder>& folders,
                       std::chrono::milliseconds patience);

// Holds the locks from construction to destruction. Creates missing folders. The destructor removes
// the lock files, and created folders that are still empty. A folder that is given twice, even
// under different names, is locked once.
class WriterLock {
 public:
  // `work`: description for refused processes, such as "run runs/a". If a folder is locked, throws
  // IoError, which names folder, holder, pid and host, and holds no lock.
  WriterLock(const std::vector<WrittenFolder>& folders, const std::string& work,
             std::chrono::milliseconds patience);
  ~WriterLock();
  WriterLock(WriterLock&&) noexcept = default;
  WriterLock& operator=(WriterLock&&) = delete;

 private:
  WriterLock() = default;
  bool take(LockFile& lock, const WrittenFolder& folder, std::chrono::milliseconds wait);

  std::vector<LockFile> locks_;
  std::vector<std::string> made_;  // created folders
};

}  // namespace sluice
