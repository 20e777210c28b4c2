#include "base/lock_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"

namespace sluice {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);
constexpr mode_t kMode = 0666;  // less the umask: whoever shares the folder is told who holds it

[[noreturn]] void fail(const std::string& what, const std::string& path, int error) {
  throw IoError(what + " " + path + ": " + std::strerror(error), path, error);
}

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
  int descriptor = -1;
  bool foreign = false;  // another user's, who does not let us write to it
};

OpenedLock open_lock(const std::string& path) {
  OpenedLock lock;
  lock.descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode);
  if (lock.descriptor < 0 && errno == EACCES) {
    lock.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    lock.foreign = lock.descriptor >= 0;
    if (!lock.foreign) errno = EACCES;
  }
  if (lock.descriptor < 0) fail("cannot create", path, errno);
  return lock;
}

}  // namespace

LockFile::LockFile(LockFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool LockFile::take(const std::string& path, std::chrono::milliseconds wait) {
  check(!held(), "a lock is taken once");
  const auto until = std::chrono::steady_clock::now() + wait;
  for (;;) {
    const OpenedLock lock = open_lock(path);
    const int error = try_lock(lock.descriptor, LOCK_EX);
    if (error == 0 && is_named(lock.descriptor, path)) {
      path_ = path;
      descriptor_ = lock.descriptor;
      // Left by somebody who was killed: makes place for one that can be signed, if it may.
      if (!lock.foreign || ::unlink(path.c_str()) != 0) return true;
      release();
      continue;
    }
    ::close(lock.descriptor);
    if (error != 0 && !is_passing(error)) fail("cannot lock", path, error);
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

void LockFile::sign(const std::string& work) const {
  check(held(), "a lock is signed by who holds it");
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string text = work + "\n" + std::to_string(::getpid()) + "\n" + host.data() + "\n";
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    fail("cannot write to", path_, errno);
  }
  (void)::fsync(descriptor_);  // for readers on other hosts
}

void LockFile::release() noexcept {
  if (held()) ::close(std::exchange(descriptor_, -1));
}

void LockFile::remove() noexcept {
  if (held() && is_named(descriptor_, path_)) ::unlink(path_.c_str());
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
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool locked = try_lock(descriptor, LOCK_SH) == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

}  // namespace sluice
