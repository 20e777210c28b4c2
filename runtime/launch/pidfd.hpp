// A descriptor that becomes readable when a process ends. Linux 5.3. Uses the system call's number,
// since glibc 2.36 declares pidfd_open without C linkage.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "runtime/observe/file_io.hpp"

namespace sluice {

// Holds no descriptor if the system refuses; errno has the cause.
[[nodiscard]] inline UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec by nature
}

}  // namespace sluice
