// The launcher's state while its processes run: its signals, terminal, orphans and supervisor. One
// thread; at most one at a time in a process.
//
// Both launchers begin with prepare_to_supervise(), start each process with start() and end with
// launch_result(see_through()).
#pragma once

#include <string>

#include "runtime/launch/descendants.hpp"
#include "runtime/launch/launcher.hpp"
#include "runtime/launch/supervisor.hpp"

namespace sluice {

// Call it before opening descriptors. Opens closed standard streams on /dev/null and creates the
// folder of the logs. Throws IoError.
void prepare_to_supervise(const std::string& output_dir);

class Supervision {
 public:
  // Takes over the stop signals and orphans of this process until the destructor. Throws Error.
  explicit Supervision(const SupervisorOptions& options);

  // Throws Error that names the process, or IoError of its log.
  void start(RankPlan plan);
  // Waits for the ends of all processes and of their leftovers. Afterwards the results' last lines
  // are complete.
  [[nodiscard]] SuperviseResult see_through();
  // Writes to standard error without blocking for long.
  void say(const std::string& text);

 private:
  StopSignalFd signals_;
  TerminalScreen screen_;
  OrphanKeeper orphans_;
  Supervisor supervisor_;
};

// The first failure; nullptr if there is none, or if a rank that a stop signal ended at once caused
// it: the run was stopped.
[[nodiscard]] const RankEnd* failure_of(const SuperviseResult& result);

// `failure` is failure_of(result). Returns the exit code of the process that failed.
[[nodiscard]] LaunchResult launch_result(const SuperviseResult& result, const RankEnd* failure);

}  // namespace sluice
