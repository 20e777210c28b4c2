// What a launcher holds while its processes run: the signals to it, its terminal, its orphans and
// their supervisor. One thread; at most one at a time in a process.
#pragma once

#include <string>

#include "runtime/launch/descendants.hpp"
#include "runtime/launch/supervisor.hpp"

namespace sluice {

class Supervision {
 public:
  // Takes over the stop signals and orphans of this process until its end. Throws Error.
  explicit Supervision(const SupervisorOptions& options);

  [[nodiscard]] Supervisor& supervisor() { return supervisor_; }
  // To the ends of all processes, and of what they left behind; the results' last lines are
  // complete.
  [[nodiscard]] SuperviseResult see_through();
  // On standard error, without ever blocking for long.
  void say(const std::string& text);

 private:
  StopSignalFd signals_;
  TerminalSink out_;
  TerminalSink err_;
  OrphanKeeper orphans_;
  Supervisor supervisor_;
};

}  // namespace sluice
