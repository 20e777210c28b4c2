// The launcher's signals as a descriptor to poll. While it lives, SIGINT, SIGTERM and SIGHUP are
// blocked in the calling thread and read here, and SIGPIPE is ignored; the destructor restores
// both. REQUIRES: no other thread of the process that takes these signals.
#pragma once

#include <signal.h>

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
  UniqueFd fd_;
};

}  // namespace sluice
