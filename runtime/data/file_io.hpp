// Operating-system calls of the data folder: a read-only map, a file that appears complete or not
// at all, a lock between processes. Each throws IoError with path, cause and errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/lock_file.hpp"

namespace sluice {

// Throws IoError "<what> <path>: <text of error_number><hint>".
[[noreturn]] void throw_io(const std::string& what, const std::string& path, int error_number,
                           const std::string& hint = "");

// An open file descriptor.
class FileHandle {
 public:
  FileHandle(const std::string& path, int flags, const std::string& what);  // flags of open(2)
  ~FileHandle();
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

// A whole file, mapped read-only. Its length is fixed at open. Touching pages of a file that was
// truncated later raises SIGBUS, so a file in use must be replaced by rename (as AtomicFile does).
// Thread-safe after construction.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Writes a temporary file beside the target. commit() syncs it and renames it over the target;
// without commit the destructor removes the temporary file. Not thread-safe.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  // Overwrites appended bytes at `offset`.
  void overwrite(std::int64_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] std::int64_t size() const {
    return written_ + static_cast<std::int64_t>(buffer_.size());
  }
  void commit();
  // Removes temporary files of `path` that a killed process left. REQUIRES: no process is writing
  // `path`.
  static void remove_leftovers(const std::string& path);

 private:
  void flush();
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);

  std::string path_, temporary_;
  FileHandle file_;
  std::vector<std::byte> buffer_;
  std::int64_t written_ = 0;
  bool committed_ = false;
};

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
// Creates the folder and its parents. Throws IoError.
void make_folder(const std::string& path);

}  // namespace sluice
