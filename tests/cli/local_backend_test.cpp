// Ranks as threads of one process: the same numbers as processes, the same ends.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/program.hpp"
#include "tests/cli/tier_runs.hpp"

namespace sluice::testing {
namespace {

class Local : public ::testing::Test {
 protected:
  Local() { write_tiny(scratch_); }
  Finished train(const std::string& out, const std::string& more,
                 const std::map<std::string, std::string>& environment = {}) {
    return run_program(scratch_,
                       "train tiny.yaml --set model.hidden=32 --set model.seq=32"
                       " --set train.steps=6 --set train.eval_steps=1 --set output.dir={}/" +
                           out + " " + more,
                       environment);
  }
  void expect_same(const std::string& sets) {
    SCOPED_TRACE(sets);
    const Finished processes = train("processes", sets);
    ASSERT_EQ(processes.exit_code, 0) << processes.output;
    const Finished threads = train("threads", sets + " --set launch.backend=local");
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    EXPECT_EQ(scratch_.curve("threads"), scratch_.curve("processes"));
    for (const Finished& run : {processes, threads}) {
      const std::vector<std::string> lines = run.lines();
      for (const char* once : {" tokens for training", " epochs"}) {
        const auto tells = [&](const std::string& line) {
          return line.find("data: ") == 0 && line.find(once) != std::string::npos;
        };
        EXPECT_EQ(std::count_if(lines.begin(), lines.end(), tells), 1) << once << run.output;
      }
    }
    // One process: one log.
    EXPECT_FALSE(std::filesystem::exists(scratch_.path("threads/rank-1.log")));
    std::filesystem::remove_all(scratch_.path("threads"));
    std::filesystem::remove_all(scratch_.path("processes"));
  }
  Scratch scratch_;
};

TEST_F(Local, LossesAreThoseOfProcesses) {
  expect_same("--set zero.stage=0");
  expect_same("--nproc 3 --set zero.stage=3 --set model.dropout=0.1");
  expect_same("--set zero.stage=2 --set train.dtype=bf16 --set train.global_batch=8");
  expect_same(everything_on("host"));
}

TEST_F(Local, SavesAndGoesOnLikeProcesses) {
  ASSERT_EQ(train("whole", "").exit_code, 0);
  const std::string sets =
      "--set launch.backend=local --set checkpoint.every=2 --set checkpoint.async=false"
      " --set launch.max_restarts=1";
  const Finished run = train("run", sets, {{"SLUICE_FAILPOINTS", "engine.step@6:rank=1:error"}});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("restart 1 of 1"), std::string::npos) << run.output;
  EXPECT_EQ(scratch_.curve("run"), scratch_.curve("whole"));
}

TEST_F(Local, ARankThatThrowsIsNamedAndEndsTheOthers) {
  const Finished run = train("run", "--nproc 3 --set launch.backend=local",
                             {{"SLUICE_FAILPOINTS", "engine.step@4:rank=2:error"}});
  EXPECT_EQ(run.exit_code, 5) << run.output;
  EXPECT_LT(run.seconds, 20);  // launch.timeout
  EXPECT_NE(run.output.find("rank 2 on "), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("failpoint engine.step"), std::string::npos) << run.output;
}

TEST_F(Local, ARankThatHangsIsNamed) {
  const Finished run = train("run", "--set launch.backend=local --set launch.timeout=6s",
                             {{"SLUICE_FAILPOINTS", "engine.step@3:rank=1:hang"}});
  EXPECT_EQ(run.exit_code, 5) << run.output;
  EXPECT_NE(run.output.find("rank 1 on "), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("made no progress"), std::string::npos) << run.output;
}

TEST_F(Local, AProcessAmongOthersIsRefused) {
  const Finished run = train("run", "--set launch.backend=local", environment_of_rank_0(2));
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("threads of one process"), std::string::npos) << run.output;
}

TEST_F(Local, ASlowRankIsNamedInTheLog) {
  for (const char* backend : {"local", "auto"}) {
    const Finished run =
        train("run", std::string("--set train.steps=20 --set launch.backend=") + backend,
              {{"SLUICE_FAILPOINTS", "engine.step:rank=1:delay=100"}});
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_NE(run.output.find("holds the others up: busy "), std::string::npos) << run.output;
    EXPECT_NE(run.output.find("rank 1 on "), std::string::npos) << run.output;
  }
}

}  // namespace
}  // namespace sluice::testing
