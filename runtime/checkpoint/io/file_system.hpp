// Every call into the operating system that a save, a purge or a read of a checkpoint makes. So few
// that each can be made to fail, to be the last one, or to be lost with the power.
//
// Errors are IoError with path, cause and remedy. The local one retries EINTR and short transfers;
// a failed sync is final and is never retried (the kernel may have dropped the pages).
// FileSystem is thread-safe; a File may be written by several threads at different offsets, and
// read by several.
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
  // All of `bytes`, or IoError.
  virtual void write(std::int64_t offset, std::span<const std::byte> bytes) = 0;
  // Returns how many bytes there were: fewer than asked at the end of the file only.
  [[nodiscard]] virtual std::int64_t read(std::int64_t offset, std::span<std::byte> bytes) = 0;
  // The same for what nobody will read again soon: past the page cache where memory, offset and
  // length are in step with pages (page_memory.hpp) and the file system has that.
  [[nodiscard]] virtual std::int64_t read_once(std::int64_t offset, std::span<std::byte> bytes) {
    return read(offset, bytes);
  }
  // Asks for the range to go to the disk now; promises nothing.
  virtual void start_writeback(std::int64_t offset, std::int64_t bytes) = 0;
  // Returns when the range has gone there, where the file system can tell; durable it is not: that
  // takes sync().
  virtual void wait_for_writeback(std::int64_t offset, std::int64_t bytes) = 0;
  virtual void sync() = 0;  // contents and length are durable after it; the name is not
  [[nodiscard]] virtual std::int64_t size() = 0;
};

struct FileStat {
  bool directory = false;
  std::int64_t bytes = 0;
  bool link = false;  // the path is a symbolic link; the others speak of what it leads to
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  [[nodiscard]] virtual std::unique_ptr<File> create(const std::string& path) = 0;  // cut to 0
  [[nodiscard]] virtual std::unique_ptr<File> open(const std::string& path) = 0;    // to read
  virtual bool make_dir(const std::string& path) = 0;  // false: there is one already
  virtual void rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual void unlink(const std::string& path) = 0;      // missing: nothing happens
  virtual void remove_dir(const std::string& path) = 0;  // missing: nothing happens
  virtual void sync_dir(const std::string& path) = 0;    // its entries are durable after it
  [[nodiscard]] virtual std::optional<FileStat> stat(const std::string& path) = 0;
  // Names without "." and "..", sorted.
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& dir) = 0;
};

// The machine's own. Each call passes failpoints (base/failpoint.hpp) before it is made:
//   checkpoint.call                                     every call below, one count: kill at call N
//   checkpoint.create  .open  .mkdir  .rename  .unlink  .rmdir  .fsync_dir  .stat  .list
//   checkpoint.write   .fsync  .read  .writeback        error: EIO
//   checkpoint.write.enospc  checkpoint.fsync.enospc  checkpoint.create.enospc   error: ENOSPC
//   checkpoint.create.erofs  checkpoint.mkdir.erofs                              error: EROFS
//   checkpoint.write.short                              error: half of it is written, then the rest
//   checkpoint.write.torn                               error: half of it is written, then EIO
//   checkpoint.read.short                               error: half of it is read, then the rest
[[nodiscard]] FileSystem& local_file_system();

// The whole file as text. Throws CheckpointError over `limit_bytes`.
[[nodiscard]] std::string read_text(FileSystem& files, const std::string& path,
                                    std::int64_t limit_bytes);
// Writes `path`.tmp, syncs it, renames it to `path` and syncs the directory: after this the text is
// durable under that name, and no crash leaves half of it there.
void replace_durably(FileSystem& files, const std::string& path, std::string_view text);
// With its parents, up to "/" or the working directory. Every one's entry is synced, whoever made
// it: a folder that is there may have been made a moment ago. An old one whose parent this user may
// not open is taken as it is; a new one that cannot be synced is an IoError.
void make_dirs_durably(FileSystem& files, const std::string& path);
[[nodiscard]] std::string join_path(std::string_view dir, std::string_view name);
[[nodiscard]] std::string parent_path(const std::string& path);  // "." where there is none

}  // namespace sluice
