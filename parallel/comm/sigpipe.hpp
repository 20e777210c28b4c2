// Blocks SIGPIPE on threads that write to connections.
//
// A write to a connection whose peer has ended raises SIGPIPE, and by default SIGPIPE ends the
// process. A rank would die silently of another rank's failure before it throws its CommError. Gloo
// and TCPStore do not guard their writes. The process-wide disposition belongs to the program, so
// the signal is blocked per thread; the write then fails with EPIPE.
#pragma once

#include <csignal>

namespace sluice {

// Blocks SIGPIPE on this thread while the object lives. Threads that are started meanwhile inherit
// the block for good. The destructor discards a SIGPIPE that was raised meanwhile; it must run on
// the thread that made the object.
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
