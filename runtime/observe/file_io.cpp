#include "runtime/observe/file_io.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"

namespace sluice {
namespace {

std::string_view remedy_for(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "; free space there or set output.dir to another disk";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; set output.dir to a folder you may write to";
    case ENOENT:
    case ENOTDIR:
      return "; the folder has to exist";
    case EMFILE:
    case ENFILE:
      return "; raise the limit on open files (ulimit -n)";
    default:
      return "";
  }
}

// Moves `temporary` to `path`; false if `path` exists and must stay.
bool publish(const std::string& temporary, const std::string& path, IfExists if_exists) {
  if (if_exists == IfExists::kKeep) {
    if (::link(temporary.c_str(), path.c_str()) == 0) {
      ::unlink(temporary.c_str());
      return true;
    }
    if (errno == EEXIST) {
      ::unlink(temporary.c_str());
      return false;
    }
    // Without hard links the check and the move are two steps.
    if (::access(path.c_str(), F_OK) == 0) {
      ::unlink(temporary.c_str());
      return false;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw_io_error("write", path, errno);
  return true;
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

void throw_io_error(std::string_view action, const std::string& path, int error_number) {
  std::string message = "cannot " + std::string(action) + " " + path + ": ";
  message += std::strerror(error_number);
  message += remedy_for(error_number);
  throw IoError(message, path, error_number);
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_io_error("write", path, errno);
    if (written == 0) throw_io_error("write", path, ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void append_whole(int fd, std::string_view bytes, const std::string& path) {
  const off_t end = ::lseek(fd, 0, SEEK_END);
  try {
    write_all(fd, bytes, path);
  } catch (const IoError&) {
    // Best effort: a device such as a pipe has no length to go back to.
    [[maybe_unused]] const int cut = end >= 0 ? ::ftruncate(fd, end) : 0;
    throw;
  }
}

UniqueFd open_for_append(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd) throw_io_error("open", path, errno);
  return fd;
}

bool write_file_atomically(const std::string& path, std::string_view bytes, IfExists if_exists) {
  // Unique over processes and threads: two writers of one path must not share a sibling.
  static std::atomic<unsigned> serial{0};
  const std::string temporary =
      path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(serial.fetch_add(1));
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) throw_io_error("write", path, errno);
  try {
    write_all(fd.get(), bytes, path);
    if (::fsync(fd.get()) != 0 && errno != EINVAL) throw_io_error("write", path, errno);
    return publish(temporary, path, if_exists);
  } catch (const IoError&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void keep_former_file(const std::string& path) {
  const std::string former = path + ".1";
  if (std::rename(path.c_str(), former.c_str()) != 0 && errno != ENOENT) {
    throw_io_error("move aside", path, errno);
  }
}

}  // namespace sluice
