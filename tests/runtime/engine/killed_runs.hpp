// What tests that kill a whole run (forked_run.hpp) and go on from what it left have in common: run
// "run" is killed at pass after pass of a failpoint, and ends each time with the bits of "whole",
// which nobody killed.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/runtime/engine/forked_run.hpp"

namespace sluice::testing {

// Two ranks of ZeRO-1 with a sample each a step, a layer of 16.
[[nodiscard]] EngineOptions engine_of_two(int steps);

class KilledRuns : public ::testing::Test {
 protected:
  // From whatever "whole" was prepared to go on from. Fails fatally.
  void run_whole();
  // Kills at passes `first`, first + stride, ... of a failpoint, until a run ends without having
  // come to one, or something fails. Returns how many were killed.
  int kill_at(const std::string& failpoint, int first, int stride);

  // run_ with a folder and a swap folder of its own.
  [[nodiscard]] ForkedRun named(const std::string& name) const;
  // The run that was killed, once more, to its end; what it said.
  [[nodiscard]] std::string go_on() const;

  ForkedRuns runs_;
  ForkedRun run_;

 private:
  // Makes what "run" begins with, the same for each pass.
  virtual void begin_anew() = 0;
  // After a run, which was killed or not: looks at what it left; a killed one has to go on.
  virtual void ended(bool killed) = 0;
  [[nodiscard]] bool kill_and_go_on(const std::string& failing);
  void expect_like_whole() const;

  std::map<std::string, std::vector<float>> states_;
};

}  // namespace sluice::testing
