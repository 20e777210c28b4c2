// Fixture of tests with runs that save and resume. gtest.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/tier_runs.hpp"

namespace sluice::testing {

inline constexpr int kResumeSteps = 10;
// Complete when its step is: for tests that count on it.
inline constexpr const char* kAtOnce = " --set checkpoint.async=false";

// Runs in the background until `until` holds, then does `act`.
template <class Until, class Act>
Finished during(std::future<Finished> run, Until&& until, Act&& act) {
  while (run.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready && !until()) {
  }
  act();
  return run.get();
}

class Resume : public ::testing::Test {
 protected:
  Resume() { write_tiny(scratch_); }

  Finished train(const std::string& out, const std::string& arguments = "",
                 const std::map<std::string, std::string>& environment = {}) {
    return run_program(scratch_,
                       "train tiny.yaml --set train.steps=" + std::to_string(kResumeSteps) +
                           " --set model.hidden=32 --set model.seq=32 --set train.eval_steps=1" +
                           " --set output.dir=" + out + " " + arguments,
                       environment);
  }
  // The curve of a run with the fixture's own settings that nobody stops: trained once.
  const std::string& whole_curve() {
    static const std::string curve = [this] {
      const Finished whole = train("whole");
      EXPECT_EQ(whole.exit_code, 0) << whole.output;
      return scratch_.curve("whole");
    }();
    EXPECT_NE(curve, "");
    return curve;
  }
  std::vector<std::string> complete(const std::string& run) const {
    std::vector<std::string> names;
    for (const std::string& name : files_in(scratch_, run + "/checkpoints")) {
      if (std::filesystem::exists(scratch_.path(run + "/checkpoints/" + name + "/manifest.json"))) {
        names.push_back(name);
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // "run" has saved steps 3 and 6 and died in step 8.
  void crash_with_two_checkpoints() {
    ASSERT_EQ(train("run", std::string("--set checkpoint.every=3") + kAtOnce,
                    {{"SLUICE_FAILPOINTS", "engine.step@8:rank=0:kill"}})
                  .exit_code,
              5);
    ASSERT_EQ(complete("run"), (std::vector<std::string>{"step-00000003", "step-00000006"}));
  }
  void expect_goes_on(const std::string& sets, const std::string& what) {
    SCOPED_TRACE(what);
    ASSERT_EQ(train("whole", sets).exit_code, 0);
    const std::string every = sets + " --set checkpoint.every=3 ";
    const Finished killed =
        train("run", every + "--resume auto", {{"SLUICE_FAILPOINTS", "engine.step@9:rank=1:kill"}});
    EXPECT_EQ(killed.exit_code, 5) << killed.output;
    const Finished resumed = train("run", every + "--resume auto");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_NE(resumed.output.find("going on with step "), std::string::npos) << resumed.output;
    EXPECT_EQ(scratch_.curve("run"), scratch_.curve("whole"));
    std::filesystem::remove_all(scratch_.path("run"));
  }

  Scratch scratch_;
};

}  // namespace sluice::testing
