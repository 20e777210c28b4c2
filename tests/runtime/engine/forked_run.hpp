// A whole run (trainer, saver, resume) in a process of its own, its ranks being threads of that, so
// that a SIGKILL inside it ends it and not the test. It is forked, not started: a tiny run takes a
// few hundredths of a second, and every one of hundreds of calls can be the last.
//
// REQUIRES of the calling process: no thread but its first, so it must not run an engine itself.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/run/trainer.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {

struct ForkedRun {
  EngineOptions engine;  // of train.steps steps on a text; dp x parallel ranks
  bool async = true;
  int every = 2;                // steps between saves; one is kept
  std::string output_dir = {};  // resumed from where it holds a checkpoint
  std::string failpoints = {};
};

struct ForkedEnd {
  bool killed = false;  // by SIGKILL
  int exit_code = -1;
  std::string log;  // output and errors
};

class ForkedRuns {
 public:
  ForkedRuns();
  [[nodiscard]] std::string path(const std::string& name) const;
  [[nodiscard]] ForkedEnd train(const ForkedRun& run) const;
  // Of each step so far, what the metrics say of loss, norm, learning rate and scale: as text, so
  // that equal means equal bits.
  [[nodiscard]] std::vector<std::string> curve(const std::string& output_dir) const;

 private:
  TemporaryFolder folder_;
};

}  // namespace sluice::testing
