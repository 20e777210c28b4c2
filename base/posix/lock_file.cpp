#include "base/posix/lock_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/posix/host_name.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);

// Whoever held the lock before may have removed the file: a lock on a file without a name is none.
// A network file system may still remember the name, but knows the count of links.
bool is_named(int descriptor, const std::string& path) {
  struct stat open_one {};
  struct stat named {};
  return ::fstat(descriptor, &open_one) == 0 && open_one.st_nlink > 0 &&
         ::stat(path.c_str(), &named) == 0 && open_one.st_ino == named.st_ino &&
         open_one.st_dev == named.st_dev;
}

// 0, or errno.
int try_lock(int descriptor, int operation) {
  try {
    failpoint("lock.take");
  } catch (const Error&) {
    return ENOLCK;
  }
  return ::flock(descriptor, operation | LOCK_NB) == 0 ? 0 : errno;
}

// EINTR, and ESTALE: the file was removed on the server.
bool is_passing(int error) { return error == EWOULDBLOCK || error == EINTR || error == ESTALE; }

struct OpenedLock {
  Descriptor descriptor;
  bool foreign = false;  // another user's, who does not let us write to it
};

OpenedLock open_lock(const std::string& path) {
  // Mode 0666, less the umask: whoever shares the folder is told who holds the lock.
  OpenedLock lock{open_descriptor(path, O_RDWR | O_CREAT | O_NOFOLLOW)};
  if (!lock.descriptor && errno == EACCES) {
    lock.descriptor = open_descriptor(path, O_RDONLY | O_NOFOLLOW);
    lock.foreign = bool(lock.descriptor);
    if (!lock.foreign) errno = EACCES;
  }
  if (!lock.descriptor) throw_io_error("create", path, errno);
  return lock;
}

}  // namespace

bool LockFile::take(const std::string& path, std::chrono::milliseconds wait) {
  check(!held(), "a lock is taken once");
  const auto until = std::chrono::steady_clock::now() + wait;
  for (;;) {
    OpenedLock lock = open_lock(path);
    const int error = try_lock(lock.descriptor.get(), LOCK_EX);
    if (error == 0 && is_named(lock.descriptor.get(), path)) {
      path_ = path;
      descriptor_ = std::move(lock.descriptor);
      // The lock file belongs to a dead owner and cannot be rewritten. Removes it, if permitted,
      // and takes a new file.
      if (!lock.foreign || ::unlink(path.c_str()) != 0) return true;
      release();
      continue;
    }
    lock.descriptor.reset();
    if (error != 0 && !is_passing(error)) throw_io_error("lock", path, error);
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

void LockFile::sign(const std::string& work) const {
  check(held(), "a lock is signed by who holds it");
  const std::string text = work + "\n" + std::to_string(::getpid()) + "\n" + host_name() + "\n";
  std::int64_t offset = 0;
  int error = ::ftruncate(descriptor_.get(), 0) == 0 ? 0 : errno;
  if (error == 0) error = write_fully_at(descriptor_.get(), std::as_bytes(std::span(text)), offset);
  if (error != 0) throw_io_error("write to", path_, error);
  (void)::fsync(descriptor_.get());  // for readers on other hosts
}

void LockFile::remove() noexcept {
  if (held() && is_named(descriptor_.get(), path_)) ::unlink(path_.c_str());
  release();
}

LockHolder read_lock_holder(const std::string& path) {
  LockHolder holder;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  std::array<char, 512> line{};
  for (std::string* field : {&holder.work, &holder.pid, &holder.host}) {
    if (!file || std::fgets(line.data(), line.size(), file.get()) == nullptr) break;
    *field = line.data();
    if (!field->empty() && field->back() == '\n') field->pop_back();
  }
  return holder;
}

bool is_locked(const std::string& path) {
  const Descriptor file = open_descriptor(path, O_RDONLY | O_NOFOLLOW);
  return file && try_lock(file.get(), LOCK_SH) == EWOULDBLOCK;
}

}  // namespace sluice
