// Observer of a program's operations, for profilers. Called on the thread that runs the operation,
// so implementations are thread-safe.
#pragma once

#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

class OpWatch {
 public:
  virtual ~OpWatch() = default;
  // Around a whole program, on the executing thread. `name`: "step 12".
  virtual void program_begins(const std::string& name) = 0;
  virtual void program_ends() = 0;
  // Around the wait of a compute operation for its `waits`, on the executing thread.
  virtual void wait_begins(const Op& op) = 0;
  virtual void wait_ends() = 0;
  // Around OpHandler::run(), on the thread that calls it. An operation of the lanes comm, pipe and
  // disk may go on after end(); `followed` says whether completed() will be called for it.
  virtual void begin(const Op& op, bool followed) = 0;
  virtual void end() = 0;
  // A followed operation of the lanes comm, pipe and disk has completed; on any thread. Not called
  // for an operation that failed.
  virtual void completed(const Op& op) = 0;
};

}  // namespace sluice
