// A file whose lock (flock) a process holds while it works. The kernel releases the lock with the
// open descriptor, so the lock never outlives its process, even after SIGKILL. A file without a
// lock blocks nobody. Programs that the holder starts do not inherit the lock (O_CLOEXEC).
//
// On network file systems that forward flock (NFS, Lustre with -o flock) the lock excludes other
// hosts. Two objects exclude each other within a process too. One thread at a time uses an object.
#pragma once

#include <chrono>
#include <string>

#include "base/posix/descriptor.hpp"

namespace sluice {

// The text of the file, for the message of a process that does not get the lock.
struct LockHolder {
  std::string work = "?", pid = "?", host = "?";
};

class LockFile {
 public:
  // Makes the file where it is missing. False: somebody else has kept the lock for all of `wait`.
  // Throws IoError: the file cannot be made, or its file system has no locks (error_number() is
  // ENOLCK, EOPNOTSUPP or the like). Failpoint: lock.take with error, ENOLCK.
  [[nodiscard]] bool take(const std::string& path, std::chrono::milliseconds wait);
  // Writes who holds it: `work`, this process and its host. REQUIRES: held(). Throws IoError.
  void sign(const std::string& work) const;
  void release() noexcept { descriptor_.reset(); }  // the file stays
  void remove() noexcept;                           // the file as well
  [[nodiscard]] bool held() const { return bool(descriptor_); }

 private:
  std::string path_;
  Descriptor descriptor_;
};

// "?" where the file does not say.
[[nodiscard]] LockHolder read_lock_holder(const std::string& path);
// True if a process holds the lock now. False if the file does not exist or cannot be tested.
[[nodiscard]] bool is_locked(const std::string& path);

}  // namespace sluice
