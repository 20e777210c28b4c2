// A lock between processes that prepare the same data, whole files as text, folders. Each throws
// IoError with the path, the cause and errno.
#pragma once

#include <cstdint>
#include <string>

#include "base/posix/lock_file.hpp"

namespace sluice {

// An exclusive lock on `path` between processes, and between objects of one process. The file is
// created if missing and stays, since removing it would race. The kernel releases the lock when its
// holder dies, so waiting ends. On a file system without locks held() is false and the caller
// continues unprotected.
class FileLock {
 public:
  FileLock(const std::string& path,
           const std::string& waiting_for);  // logs `waiting_for` if it waits
  [[nodiscard]] bool held() const { return lock_.held(); }

 private:
  LockFile lock_;
};

// The whole file, for a parser in memory. Throws IoError if the file is larger than `limit_bytes`.
[[nodiscard]] std::string read_whole_file(const std::string& path, std::int64_t limit_bytes);
// True if something is at `path`; false also where the path cannot be searched.
[[nodiscard]] bool path_exists(const std::string& path);
// Creates the folder and its parents. Throws IoError.
void make_folder(const std::string& path);
// The same for the folder of the file `path`.
void make_parent_folder(const std::string& path);

}  // namespace sluice
