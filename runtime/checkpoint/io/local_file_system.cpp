#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/posix/descriptor.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/checkpoint/io/page_memory.hpp"

namespace sluice {
namespace {

std::string_view remedy_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free space there, keep fewer checkpoints (checkpoint.keep: 1 or more, 0 keeps "
             "all), or name a folder on another disk (checkpoint.dir, -o)";
    case EACCES:
    case EPERM:
      return "; give this user the right, or name another folder (checkpoint.dir, -o)";
    case EROFS:
      return "; name a folder you may write to (checkpoint.dir, -o)";
    case EMFILE:
    case ENFILE:
      return "; raise the limit on open files (ulimit -n)";
    case EIO:
      return "; the disk failed: see dmesg";
    default:
      return "";
  }
}

[[noreturn]] void fail(std::string_view action, const std::string& path, int error) {
  throw_io_error(action, path, error, remedy_for(error));
}

// Returns `error` if the failpoint fires, else 0.
int injected(const std::string& name, int error) {
  try {
    failpoint(name);
    return 0;
  } catch (const Error&) {
    return error;
  }
}

// Evaluates the failpoints of one call in the order of the header's list.
void pass(const char* call, std::string_view action, const std::string& path) {
  const std::string name = std::string("checkpoint.") + call;
  int error = injected("checkpoint.call", EIO);
  if (error == 0) error = injected(name, EIO);
  if (error == 0) error = injected(name + ".enospc", ENOSPC);
  if (error == 0) error = injected(name + ".erofs", EROFS);
  if (error != 0) fail(action, path, error);
}

class LocalFile final : public File {
 public:
  // `access`: O_RDONLY or O_WRONLY.
  LocalFile(Descriptor file, int access, std::string path)
      : file_(std::move(file)), fd_(file_.get()), access_(access), path_(std::move(path)) {}

  void write(std::int64_t offset, std::span<const std::byte> bytes) override {
    pass("write", "write", path_);
    if (injected("checkpoint.write.torn", EIO) != 0) {
      write_all(offset, bytes.first(bytes.size() / 2));
      fail("write", path_, EIO);
    }
    if (injected("checkpoint.write.short", EIO) != 0) {
      const std::size_t half = bytes.size() / 2;
      write_all(offset, bytes.first(half));
      offset += static_cast<std::int64_t>(half);
      bytes = bytes.subspan(half);
    }
    write_all(offset, bytes);
  }

  std::int64_t read(std::int64_t offset, std::span<std::byte> bytes) override {
    pass("read", "read", path_);
    read_ahead(offset, static_cast<std::int64_t>(bytes.size()));
    return read_by(fd_, offset, bytes);
  }

  std::int64_t read_once(std::int64_t offset, std::span<std::byte> bytes) override {
    pass("read", "read", path_);
    const auto size = static_cast<std::int64_t>(bytes.size());
    const bool in_step = in_pages(bytes.data()) && offset % kPageBytes == 0 &&
                         size % kPageBytes == 0 && size >= kDirectBytes;
    if (in_step && open_direct()) return read_by(direct_.get(), offset, bytes);
    (void)::posix_fadvise(fd_, offset, size, POSIX_FADV_WILLNEED);  // one request to the disk
    return read_by(fd_, offset, bytes);
  }

  void start_writeback(std::int64_t offset, std::int64_t bytes) override {
    pass("writeback", "write", path_);
    // A hint; file systems that do not support it write at sync().
    ::sync_file_range(fd_, offset, bytes, SYNC_FILE_RANGE_WRITE);
  }

  void wait_for_writeback(std::int64_t offset, std::int64_t bytes) override {
    pass("writeback", "write", path_);
    constexpr unsigned kAll =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    while (::sync_file_range(fd_, offset, bytes, kAll) != 0) {
      if (errno == EINTR) continue;
      if (errno == ENOSYS || errno == EINVAL || errno == ESPIPE) return;  // not supported
      fail("write", path_, errno);  // the kernel reports it once; the final sync would not see it
    }
  }

  void sync() override {
    pass("fsync", "sync", path_);
    if (::fsync(fd_) != 0) fail("sync", path_, errno);
  }

  std::int64_t size() override {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail("look at", path_, errno);
    return info.st_size;
  }

 private:
  // Asks the kernel for the next 16 to 32 MiB once a reader reads sequentially. The kernel's own
  // read-ahead is a fraction of a block, so the reader would wait for the disk at each block.
  void read_ahead(std::int64_t offset, std::int64_t bytes) {
    const std::int64_t end = offset + bytes;
    const bool goes_on = read_end_.exchange(end) == offset && bytes >= kDirectBytes;
    if (!goes_on) {
      asked_end_ = end;
    } else if (asked_end_ < end + kAheadBytes) {
      const std::int64_t from = std::max(asked_end_.load(), end);
      (void)::posix_fadvise(fd_, from, kAheadBytes, POSIX_FADV_WILLNEED);
      asked_end_ = from + kAheadBytes;
    }
  }
  std::int64_t read_by(int fd, std::int64_t offset, std::span<std::byte> bytes) {
    const bool cut = injected("checkpoint.read.short", EIO) != 0;
    std::size_t limit = cut ? bytes.size() / 2 : bytes.size();
    std::int64_t total = 0;
    while (!bytes.empty()) {
      const ssize_t got = ::pread(fd, bytes.data(), std::min(limit, bytes.size()), offset + total);
      if (got < 0 && errno == EINVAL && fd != fd_) {  // of larger blocks than a page
        fd = fd_;
        continue;
      }
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read", path_, errno);
      if (got == 0 && limit > 0) break;
      total += got;
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      limit = bytes.size();
      if (got % kPageBytes != 0) fd = fd_;  // cut short: the rest is out of step
    }
    return total;
  }
  static bool in_pages(const std::byte* memory) {
    return reinterpret_cast<std::uintptr_t>(memory) % kPageBytes == 0;
  }
  // Bypasses the page cache as far as memory, file and offset permit. The bytes are not read again
  // soon, and write-back from the cache is a third slower, or far more on busy CPUs.
  void write_all(std::int64_t offset, std::span<const std::byte> bytes) {
    const std::int64_t size = static_cast<std::int64_t>(bytes.size());
    const std::int64_t head = std::min(size, (kPageBytes - offset % kPageBytes) % kPageBytes);
    const std::int64_t body = (size - head) / kPageBytes * kPageBytes;
    const bool in_step = in_pages(bytes.data() + head);
    if (body < kDirectBytes || !in_step || !open_direct()) return write_by(fd_, offset, bytes);
    const auto at = [&](std::int64_t begin, std::int64_t length) {
      return bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
    };
    write_by(fd_, offset, at(0, head));
    write_by(direct_.get(), offset + head, at(head, body));
    write_by(fd_, offset + head + body, at(head + body, size - head - body));
  }
  bool open_direct() {
    const std::lock_guard lock(direct_mutex_);
    if (!direct_tried_) direct_ = open_descriptor(path_, access_ | O_DIRECT);
    direct_tried_ = true;
    return bool(direct_);  // not every file system has O_DIRECT
  }
  void write_by(int fd, std::int64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINVAL && fd != fd_) {  // of larger blocks than a page
        fd = fd_;
        continue;
      }
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", path_, errno);
      if (written == 0) fail("write", path_, ENOSPC);
      offset += written;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      if (written % kPageBytes != 0) fd = fd_;  // cut short: the rest is out of step
    }
  }

  static constexpr std::int64_t kDirectBytes = 256 * 1024;  // below, the cache is as fast
  static constexpr std::int64_t kAheadBytes = 16 << 20;
  Descriptor file_;
  int fd_;  // of file_
  int access_;
  std::string path_;
  std::atomic<std::int64_t> read_end_{-1}, asked_end_{0};  // hints: ends of last read and request
  std::mutex direct_mutex_;
  bool direct_tried_ = false;
  Descriptor direct_;
};

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<File> create(const std::string& path) override {
    pass("create", "create", path);
    return opened(path, O_WRONLY | O_CREAT | O_TRUNC, "create");
  }
  std::unique_ptr<File> open(const std::string& path) override {
    pass("open", "open", path);
    return opened(path, O_RDONLY, "open");
  }
  bool make_dir(const std::string& path) override {
    pass("mkdir", "create", path);
    if (::mkdir(path.c_str(), 0777) == 0) return true;
    const int error = errno;
    struct stat info {};
    if (error == EEXIST && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return false;
    fail("create the directory", path, error);
  }
  void rename(const std::string& from, const std::string& to) override {
    pass("rename", "replace", to);
    if (std::rename(from.c_str(), to.c_str()) != 0) fail("replace", to, errno);
  }
  void unlink(const std::string& path) override {
    pass("unlink", "remove", path);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail("remove", path, errno);
  }
  void remove_dir(const std::string& path) override {
    pass("rmdir", "remove", path);
    if (::rmdir(path.c_str()) != 0 && errno != ENOENT) fail("remove", path, errno);
  }
  void sync_dir(const std::string& path) override {
    pass("fsync_dir", "sync", path);
    if (const int error = sync_folder(path)) fail("sync", path, error);
  }
  std::optional<FileStat> stat(const std::string& path) override {
    pass("stat", "look at", path);
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) {
      const bool link = S_ISLNK(info.st_mode);
      if (!link || ::stat(path.c_str(), &info) == 0) {
        return FileStat{S_ISDIR(info.st_mode), info.st_size, link};
      }
    }
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail("look at", path, errno);
  }
  std::vector<std::string> list(const std::string& dir) override {
    pass("list", "list", dir);
    DIR* const handle = ::opendir(dir.c_str());
    if (handle == nullptr) fail("list", dir, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(handle)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const int error = errno;
    ::closedir(handle);
    if (error != 0) fail("list", dir, error);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static std::unique_ptr<File> opened(const std::string& path, int flags, std::string_view action) {
    Descriptor file = open_descriptor(path, flags);
    if (!file) fail(action, path, errno);
    return std::make_unique<LocalFile>(std::move(file), flags & O_ACCMODE, path);
  }
};

}  // namespace

FileSystem& local_file_system() {
  static LocalFileSystem files;
  return files;
}

}  // namespace sluice
