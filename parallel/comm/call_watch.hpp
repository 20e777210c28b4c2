// Observer of NCCL calls: called before the first and after the last message of each call on this
// thread. Used to time calls.
#pragma once

namespace sluice {

// Both functions are called with the stream current that runs the call's messages.
class CallWatch {
 public:
  virtual ~CallWatch() = default;
  virtual void begins() = 0;  // before the first message
  virtual void ends() = 0;    // behind the last message
};

// The observer of the calling thread. Null: calls are not observed.
inline CallWatch*& call_watch() {
  thread_local CallWatch* watch = nullptr;
  return watch;
}

}  // namespace sluice
