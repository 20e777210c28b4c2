// All system calls of saving, purging and reading checkpoints. The interface is small, so tests can
// make each call fail, end the process at each call, or lose the effects of each call with the
// power.
//
// Errors are IoError with path, cause and remedy. The local file system retries EINTR and short
// transfers. A failed sync is final and never retried, because the kernel may have dropped the
// pages. FileSystem is thread-safe. Several threads may read a File, and write it at different
// offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class File {
 public:
  virtual ~File() = default;
  // Writes all of `bytes`, or throws IoError.
  virtual void write(std::int64_t offset, std::span<const std::byte> bytes) = 0;
  // Returns the number of bytes read; fewer than requested only at the end of the file.
  [[nodiscard]] virtual std::int64_t read(std::int64_t offset, std::span<std::byte> bytes) = 0;
  // read() for bytes that will not be read again soon. Bypasses the page cache if memory, offset
  // and length are multiples of a page (page_memory.hpp) and the file system supports it.
  [[nodiscard]] virtual std::int64_t read_once(std::int64_t offset, std::span<std::byte> bytes) {
    return read(offset, bytes);
  }
  // Asks the kernel to start writing the range to disk. Guarantees nothing.
  virtual void start_writeback(std::int64_t offset, std::int64_t bytes) = 0;
  // Returns when the range is on the disk, if the file system can tell. Only sync() makes it
  // durable.
  virtual void wait_for_writeback(std::int64_t offset, std::int64_t bytes) = 0;
  virtual void sync() = 0;  // makes contents and length durable, but not the name
  [[nodiscard]] virtual std::int64_t size() = 0;
};

struct FileStat {
  bool directory = false;
  std::int64_t bytes = 0;
  bool link = false;  // the path is a symbolic link; the other fields describe its target
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  [[nodiscard]] virtual std::unique_ptr<File> create(const std::string& path) = 0;  // truncates
  [[nodiscard]] virtual std::unique_ptr<File> open(const std::string& path) = 0;    // for reading
  virtual bool make_dir(const std::string& path) = 0;  // false: it exists already
  virtual void rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual void unlink(const std::string& path) = 0;      // no error if it is missing
  virtual void remove_dir(const std::string& path) = 0;  // no error if it is missing
  virtual void sync_dir(const std::string& path) = 0;    // makes the directory's entries durable
  [[nodiscard]] virtual std::optional<FileStat> stat(const std::string& path) = 0;
  // Names without "." and "..", sorted.
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& dir) = 0;
};

// The file system of this machine. Each call evaluates failpoints (base/failpoint.hpp) first:
// clang-format off
//   checkpoint.call                                     counts every call below: kill at call N
//   checkpoint.create  .open  .mkdir  .rename  .unlink  .rmdir  .fsync_dir  .stat  .list
//   checkpoint.write   .fsync  .read  .writeback        error: EIO
//   checkpoint.write.enospc  checkpoint.fsync.enospc  checkpoint.create.enospc   error: ENOSPC
//   checkpoint.create.erofs  checkpoint.mkdir.erofs                              error: EROFS
//   checkpoint.write.short                              error: half is written, then the rest
//   checkpoint.write.torn                               error: half is written, then EIO
//   checkpoint.read.short                               error: half is read, then the rest
// clang-format on
[[nodiscard]] FileSystem& local_file_system();

// Reads the whole file. Throws CheckpointError if it exceeds `limit_bytes`.
[[nodiscard]] std::string read_text(FileSystem& files, const std::string& path,
                                    std::int64_t limit_bytes);
// Writes `path`.tmp, syncs it, renames it to `path` and syncs the directory. The text is then
// durable under that name, and no crash leaves half of the text.
void replace_durably(FileSystem& files, const std::string& path, std::string_view text);
// Creates `path` and its parents, up to "/" or the working directory. Syncs the entry of every
// directory, also of existing ones: another process may have created them a moment ago. If this
// user may not open the parent of an existing directory, the directory is not synced. A new
// directory that cannot be synced is an IoError.
void make_dirs_durably(FileSystem& files, const std::string& path);
[[nodiscard]] std::string join_path(std::string_view dir, std::string_view name);
[[nodiscard]] std::string parent_path(const std::string& path);  // "." if there is no parent

}  // namespace sluice
