// Two runs, and commands, that want one folder: who is refused, and that nothing is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <sstream>
#include <thread>

#include "base/posix/lock_file.hpp"
#include "tests/cli/tier_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OneFolder : public ::testing::Test {
 public:
  ~OneFolder() override {
    if (first_.valid()) (void)end_first(SIGKILL);
  }

 protected:
  OneFolder() { write_tiny(scratch_); }

  Finished train(const std::string& arguments,
                 const std::map<std::string, std::string>& environment = {}) const {
    return run_program(scratch_,
                       "train tiny.yaml --set model.hidden=32 --set model.seq=32 "
                       "--set train.eval_steps=1 --set checkpoint.async=false " +
                           arguments,
                       environment);
  }
  // One that trains in run/ for ever. Returns when it has saved twice, unless it is to do
  // otherwise.
  void start_first(const std::string& saving = "--set checkpoint.every=2") {
    first_ = std::async(std::launch::async, [this, saving] {
      return train(
          "--set output.dir=run --set train.steps=100000 --set train.eval_every=0 " + saving,
          {{"SLUICE_FAILPOINTS", "engine.step:delay=100"}});
    });
    while (scratch_.metrics("run").size() < 5) {
      ASSERT_NE(first_.wait_for(std::chrono::milliseconds(20)), std::future_status::ready)
          << first_.get().output;
    }
    const LockHolder holder = read_lock_holder(scratch_.path("run/sluice-run.lock"));
    EXPECT_EQ(holder.work, "run " + scratch_.path("run"));
    ASSERT_NE(holder.pid, "?");
    launcher_ = std::stoi(holder.pid);
  }
  Finished end_first(int signal) {
    if (launcher_ > 0) ::kill(launcher_, signal);
    return first_.get();
  }
  void expect_refused(const Finished& second, const std::string& folder) const {
    EXPECT_EQ(second.exit_code, 4) << second.output;
    EXPECT_THAT(second.output, HasSubstr(folder + " is in use by run " + scratch_.path("run") +
                                         " (pid " + std::to_string(launcher_) + " on host "));
  }

  Scratch scratch_;
  std::future<Finished> first_;
  pid_t launcher_ = 0;
};

// It waits a quarter of launch.timeout.
const std::string kImpatient = " --set launch.timeout=2s ";

TEST_F(OneFolder, ASecondRunIsRefusedAndTheFirstLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(start_first());
  const std::string config = scratch_.read("run/config.yaml");
  expect_refused(train("--set output.dir=run --resume auto" + kImpatient), "output.dir run");
  expect_refused(train("--set output.dir=other --set checkpoint.dir=run/checkpoints --resume auto" +
                       kImpatient),
                 "checkpoint.dir run/checkpoints");
  expect_refused(train("--set output.dir=other --set checkpoint.dir=run --set train.steps=1"
                       " --set launch.nproc=1" +
                       kImpatient),
                 "checkpoint.dir run");
  EXPECT_FALSE(fs::exists(scratch_.path("other")));
  // Ranks that something else started.
  const std::map<std::string, std::string> joined{
      {"RANK", "0"},        {"WORLD_SIZE", "1"},
      {"LOCAL_RANK", "0"},  {"LOCAL_WORLD_SIZE", "1"},
      {"MASTER_PORT", "1"}, {"MASTER_ADDR", "127.0.0.1"}};
  expect_refused(train("--set output.dir=run --resume auto" + kImpatient, joined),
                 "output.dir run");
  EXPECT_EQ(scratch_.read("run/config.yaml"), config);
  for (const char* command : {"convert", "export"}) {
    expect_refused(
        run_program(scratch_, std::string("checkpoint ") + command + " run/checkpoints -o run"),
        "-o run");
  }
  // Who only reads is let in, and so is a run from the first one's checkpoint.
  for (const char* command : {"checkpoint ls run/checkpoints", "train tiny.yaml --dry-run",
                              "plan tiny.yaml --set model.vocab=257"}) {
    EXPECT_EQ(run_program(scratch_, command).exit_code, 0) << command;
  }
  const Finished first = end_first(SIGTERM);
  EXPECT_EQ(first.exit_code, 130) << first.output;
  EXPECT_THAT(first.output, HasSubstr("stopped by request"));
  const Finished verified = run_program(scratch_, "checkpoint verify run/checkpoints");
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  for (const char* folder : {"run", "run/checkpoints"}) {
    EXPECT_THAT(files_in(scratch_, folder), ::testing::Not(::testing::Contains("sluice-run.lock")));
  }
  const std::string more =
      " --set train.steps=" + std::to_string(scratch_.metrics("run").size() + 3) + " --resume ";
  EXPECT_EQ(train("--set output.dir=fork" + more + "run/checkpoints").exit_code, 0);
  const Finished next = train("--set output.dir=run" + more + "auto");
  EXPECT_EQ(next.exit_code, 0) << next.output;
  EXPECT_EQ(scratch_.metrics("fork").size(), 3U);
}

// save-now asks such a run at any time, so that its folder is its own from the start.
TEST_F(OneFolder, ARunThatSavesOnRequestAloneHasItsFolderToItself) {
  const std::string unsaved = "--set checkpoint.at_end=false ";
  ASSERT_NO_FATAL_FAILURE(start_first(unsaved));
  expect_refused(train("--set output.dir=other --set checkpoint.dir=run/checkpoints "
                       "--set train.steps=1" +
                       kImpatient),
                 "checkpoint.dir run/checkpoints");
  scratch_.write("run/save-now", "");
  while (!fs::exists(scratch_.path("run/checkpoints/latest"))) {
    ASSERT_NE(first_.wait_for(std::chrono::milliseconds(20)), std::future_status::ready)
        << first_.get().output;
  }
  EXPECT_EQ(end_first(SIGTERM).exit_code, 130);
  const auto saved = files_in(scratch_, "run/checkpoints");
  EXPECT_EQ(run_program(scratch_, "checkpoint verify run").exit_code, 0);
  // The next run's steps are not to be mixed with these.
  scratch_.write("run/save-now", "");
  const Finished next = train(unsaved + "--set output.dir=run --set train.steps=3");
  EXPECT_EQ(next.exit_code, 0) << next.output;
  EXPECT_THAT(next.output, HasSubstr("save-now: nothing is saved: run/checkpoints holds step-"));
  EXPECT_EQ(files_in(scratch_, "run/checkpoints"), saved);
  // Where nobody asks, no empty folder stays.
  EXPECT_EQ(train(unsaved + "--set output.dir=new --set train.steps=1").exit_code, 0);
  EXPECT_FALSE(fs::exists(scratch_.path("new/checkpoints")));
}

TEST_F(OneFolder, AKilledRunBlocksNobody) {
  ASSERT_NO_FATAL_FAILURE(start_first());
  EXPECT_EQ(end_first(SIGKILL).exit_code, 128 + SIGKILL);
  EXPECT_TRUE(fs::exists(scratch_.path("run/sluice-run.lock")));
  const Finished next = train("--set output.dir=run --resume auto --set train.steps=" +
                              std::to_string(scratch_.metrics("run").size() + 3));
  EXPECT_EQ(next.exit_code, 0) << next.output;
  EXPECT_THAT(next.output,
              AllOf(HasSubstr("going on with step"), ::testing::Not(HasSubstr("is in use by"))));
  EXPECT_FALSE(fs::exists(scratch_.path("run/sluice-run.lock")));
}

// The launcher holds the lock, so the ranks that it starts again meet none. One folder for both.
TEST_F(OneFolder, ARestartIsOfTheSameRun) {
  const Finished run = train(
      "--set output.dir=run --set checkpoint.dir=run --set train.steps=8 --set checkpoint.every=2 "
      "--set launch.max_restarts=1",
      {{"SLUICE_FAILPOINTS", "engine.step@6:rank=1:kill"}});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("restart 1 of 1"), HasSubstr("going on with step 5"),
                                ::testing::Not(HasSubstr("is in use by"))));
  EXPECT_EQ(scratch_.metrics("run").size(), 8U);
}

}  // namespace
}  // namespace sluice::testing
