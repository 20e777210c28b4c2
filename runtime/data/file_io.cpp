#include "runtime/data/file_io.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace sluice {
namespace {

constexpr std::size_t kWriteBuffer = 1 << 20;

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter++);
}

std::string hint_for(int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT) {
    return "; free some space or choose another folder";
  }
  if (error_number == EACCES || error_number == EPERM || error_number == EROFS) {
    return "; give this user the permission or choose another folder";
  }
  return "";
}

std::string parent_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

void throw_io(const std::string& what, const std::string& path, int error_number,
              const std::string& hint) {
  throw IoError(what + " " + path + ": " + std::generic_category().message(error_number) + hint,
                path, error_number);
}

FileHandle::FileHandle(const std::string& path, int flags, const std::string& what)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
  if (fd_ < 0) {
    const int error_number = errno;
    throw_io(what, path, error_number, (flags & O_CREAT) != 0 ? hint_for(error_number) : "");
  }
}

FileHandle::~FileHandle() { ::close(fd_); }

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const FileHandle file(path, O_RDONLY, "cannot open");
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) throw_io("cannot read the size of", path, errno);
  if (!S_ISREG(status.st_mode)) throw IoError(path + " is not a regular file", path);
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (address == MAP_FAILED) throw_io("cannot map", path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

AtomicFile::AtomicFile(const std::string& path)
    : path_(path),
      temporary_(temporary_name(path)),
      file_(temporary_, O_RDWR | O_CREAT | O_EXCL, "cannot create") {
  buffer_.reserve(kWriteBuffer);
}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file_.fd(), bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error_number = count == 0 ? ENOSPC : errno;
      throw_io("cannot write", path_, error_number,
               hint_for(error_number) + " (stopped at " + format_bytes(offset) + ")");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void AtomicFile::flush() {
  write_at(written_, buffer_);
  written_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kWriteBuffer) flush();
  if (bytes.size() > kWriteBuffer) {
    write_at(written_, bytes);
    written_ += static_cast<std::int64_t>(bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::overwrite(std::int64_t offset, std::span<const std::byte> bytes) {
  flush();
  check(offset >= 0 && offset + static_cast<std::int64_t>(bytes.size()) <= written_,
        "AtomicFile::overwrite past the end");
  write_at(offset, bytes);
}

void AtomicFile::commit() {
  flush();
  if (::fsync(file_.fd()) != 0) throw_io("cannot write", path_, errno, hint_for(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw_io("cannot rename " + temporary_ + " to", path_, errno);
  }
  committed_ = true;
  const FileHandle folder(parent_of(path_), O_RDONLY | O_DIRECTORY, "cannot open the folder");
  // Some file systems cannot sync a folder (EINVAL); the rename holds nevertheless.
  if (::fsync(folder.fd()) != 0 && errno != EINVAL) throw_io("cannot sync", path_, errno);
}

void AtomicFile::remove_leftovers(const std::string& path) {
  const std::string prefix = std::filesystem::path(path).filename().string() + ".tmp.";
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(parent_of(path), ignored), end; it != end && !ignored;
       it.increment(ignored)) {
    if (it->path().filename().string().starts_with(prefix)) ::unlink(it->path().c_str());
  }
}

FileLock::FileLock(const std::string& path, const std::string& waiting_for) {
  const FileHandle made(path, O_RDWR | O_CREAT, "cannot create the lock");
  try {
    if (lock_.take(path, std::chrono::milliseconds(0))) return;
    log_info(waiting_for);
    while (!lock_.take(path, std::chrono::minutes(1))) {
    }
  } catch (const IoError& error) {
    log_warning("cannot lock " + path + " (" +
                std::generic_category().message(error.error_number()) +
                "): several processes may do the same work");
  }
}

std::string read_whole_file(const std::string& path, std::int64_t limit_bytes) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (static_cast<std::int64_t>(bytes.size()) > limit_bytes) {
    throw IoError(path + " is " + format_bytes(static_cast<std::int64_t>(bytes.size())) +
                      ", more than the " + format_bytes(limit_bytes) + " such a file may have",
                  path);
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path))
    error.assign(ENOTDIR, std::generic_category());
  if (error) throw_io("cannot create the folder", path, error.value(), hint_for(error.value()));
}

}  // namespace sluice
