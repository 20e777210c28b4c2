// One writer of a folder at a time: a run of its output.dir and checkpoint.dir, a command of what
// it makes. Two that save to one folder would take each other's unfinished save for what a crash
// left, and purge each other's checkpoints.
//
// sluice-run.lock in the folder (base/posix/lock_file.hpp) is held by one process of the run: the
// launcher, or rank 0 where something else started the ranks. Who only reads takes no lock and
// meets none. A file system without locks, or a folder in which no file can be made, is a warning:
// nothing is guarded then, and whoever writes there says what is wrong with it.
//
// A process that is being killed holds its locks until its memory is free, so a start waits
// `patience` before it is refused. Not thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/posix/lock_file.hpp"

namespace sluice {

inline constexpr char kWriterLockName[] = "sluice-run.lock";

struct WrittenFolder {
  std::string key;  // what names it: "checkpoint.dir", "-o"
  std::string path;
};

// Throws IoError, as WriterLock does, where somebody writes to one of them now. Makes nothing.
void check_not_written(const std::vector<WrittenFolder>& folders,
                       std::chrono::milliseconds patience);

// From construction to destruction, which removes the files. Folders that are missing are made, and
// removed where they are still empty then; one that comes twice, under whatever name, is locked
// once.
class WriterLock {
 public:
  // `work`: for whoever is refused, "run runs/a". Throws IoError that names folder, holder, pid and
  // host, and holds nothing then.
  WriterLock(const std::vector<WrittenFolder>& folders, const std::string& work,
             std::chrono::milliseconds patience);
  ~WriterLock();
  WriterLock(WriterLock&&) noexcept = default;
  WriterLock& operator=(WriterLock&&) = delete;

 private:
  WriterLock() = default;
  bool take(LockFile& lock, const WrittenFolder& folder, std::chrono::milliseconds wait);

  std::vector<LockFile> locks_;
  std::vector<std::string> made_;  // folders
};

}  // namespace sluice
