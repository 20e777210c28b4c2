// A descriptor that becomes readable when a process ends. Linux 5.3. Uses the system call's number,
// since glibc 2.36 declares pidfd_open without C linkage.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/posix/descriptor.hpp"

namespace sluice {

// Holds no descriptor if the system refuses; errno has the cause.
[[nodiscard]] inline Descriptor open_pidfd(pid_t pid) {
  return Descriptor(
      static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec by nature
}

}  // namespace sluice
