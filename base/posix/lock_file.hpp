// A file whose lock (flock) is held for as long as somebody is at work. The lock is of the open
// descriptor and ends with it, so after SIGKILL nothing blocks: not the file, only the lock counts.
// Programs that the holder starts do not inherit it (O_CLOEXEC).
//
// On network file systems that pass flock on (NFS, Lustre with -o flock) it holds between hosts.
// An object is of one thread at a time; two objects exclude each other within a process as well.
#pragma once

#include <chrono>
#include <string>

#include "base/posix/descriptor.hpp"

namespace sluice {

// What the file says, for whoever is refused.
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
// Whether somebody holds it at this moment. False where there is no such file, or none can tell.
[[nodiscard]] bool is_locked(const std::string& path);

}  // namespace sluice
