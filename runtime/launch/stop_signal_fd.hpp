// The launcher's signals as a descriptor for poll. During its lifetime SIGINT, SIGTERM and SIGHUP
// are blocked in the calling thread and read through this descriptor, and SIGPIPE is ignored. The
// destructor restores both. Other threads may run (libtorch's threads after a plan): a signal
// delivered to another thread is passed to the calling thread. At most one in a process; made, read
// and destroyed by one thread.
#pragma once

#include <signal.h>

#include <array>
#include <optional>

#include "base/posix/descriptor.hpp"

namespace sluice {

class StopSignalFd {
 public:
  StopSignalFd();  // throws Error
  ~StopSignalFd();
  StopSignalFd(const StopSignalFd&) = delete;
  StopSignalFd& operator=(const StopSignalFd&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  // The next pending signal, without waiting.
  [[nodiscard]] std::optional<int> next();
  // The former signal mask, which child processes must get.
  [[nodiscard]] const sigset_t& former_mask() const { return former_mask_; }

 private:
  sigset_t former_mask_{};
  struct sigaction former_pipe_ {};
  std::array<struct sigaction, 3> former_{};  // of the stop signals, in their order
  Descriptor fd_;
};

}  // namespace sluice
