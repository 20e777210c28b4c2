// Writing to a connection whose peer has gone raises SIGPIPE, which ends a process that does not
// say otherwise: a rank would die silently of another rank's failure, before it can throw its
// CommError. Gloo and TCPStore do not guard their writes. The process's disposition is not ours to
// change, so it is blocked on the threads that write; the write then fails with EPIPE.
#pragma once

#include <csignal>

namespace sluice {

// SIGPIPE is blocked on this thread while the object lives, and for good on threads started
// meanwhile, which inherit it. What was raised in between is discarded. Destroy it on the thread
// that made it.
class SigpipeBlock {
 public:
  SigpipeBlock();
  ~SigpipeBlock();
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  sigset_t before_;
  bool was_pending_;
};

}  // namespace sluice
