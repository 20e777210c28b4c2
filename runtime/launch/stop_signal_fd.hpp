// The launcher's signals as a descriptor to poll. While it lives, SIGINT, SIGTERM and SIGHUP are
// blocked in the calling thread and read here, and SIGPIPE is ignored; the destructor restores
// both. Other threads may run (libtorch's do, once a plan was made): a signal that the system gives
// to one of them is handed on to the calling thread. One at a time in a process; made, read and
// destroyed by one thread.
#pragma once

#include <signal.h>

#include <array>
#include <optional>

#include "runtime/observe/file_io.hpp"

namespace sluice {

class StopSignalFd {
 public:
  StopSignalFd();  // throws Error
  ~StopSignalFd();
  StopSignalFd(const StopSignalFd&) = delete;
  StopSignalFd& operator=(const StopSignalFd&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  // The next signal that came, without waiting.
  [[nodiscard]] std::optional<int> next();
  // The signal mask from before, which a child must be given.
  [[nodiscard]] const sigset_t& former_mask() const { return former_mask_; }

 private:
  sigset_t former_mask_{};
  struct sigaction former_pipe_ {};
  std::array<struct sigaction, 3> former_{};  // of the stop signals, in their order
  UniqueFd fd_;
};

}  // namespace sluice
