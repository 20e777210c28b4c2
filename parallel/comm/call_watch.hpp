// Told of a thread's calls of NCCL communicators, for times. In the CUDA module.
#pragma once

namespace sluice {

// Both functions are called with the stream current that runs the call's messages.
class CallWatch {
 public:
  virtual ~CallWatch() = default;
  virtual void begins() = 0;  // before the first message
  virtual void ends() = 0;    // behind the last message
};

// Of the calling thread; null: nobody is told.
inline CallWatch*& call_watch() {
  thread_local CallWatch* watch = nullptr;
  return watch;
}

}  // namespace sluice
