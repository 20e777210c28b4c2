// How a run ends: a stop after its last step, and files that are gone at the end.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/resume_runs.hpp"

namespace sluice::testing {
namespace {

// All steps are done: there is nothing to go on with.
TEST_F(Resume, AStopInTheLastStepEndsAFinishedRun) {
  auto run = std::async(std::launch::async, [&] {
    return train("run", "", {{"SLUICE_FAILPOINTS", "engine.step@10:delay=1500"}});
  });
  const Finished finished = during(
      std::move(run), [&] { return scratch_.metrics("run").size() >= 9; },
      [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        signal_launcher(scratch_, "run", SIGTERM);
      });
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_EQ(finished.output.find("stopped by"), std::string::npos) << finished.output;
  EXPECT_EQ(scratch_.curve("run"), whole_curve());
  EXPECT_TRUE(scratch_.metrics("run").back().contains("eval_loss")) << finished.output;
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000010"}) << finished.output;
}

// A stop in the last evaluation ends that evaluation alone.
TEST_F(Resume, AStopInTheLastEvaluationEndsAFinishedRun) {
  auto run = std::async(std::launch::async,
                        [&] { return train("run", "--set train.eval_steps=1000000"); });
  const Finished finished = during(
      std::move(run), [&] { return scratch_.metrics("run").size() >= 9; },
      [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));  // step 10 itself takes a few
        signal_launcher(scratch_, "run", SIGTERM);
      });
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_EQ(finished.output.find("stopped by"), std::string::npos) << finished.output;
  EXPECT_FALSE(scratch_.metrics("run").back().contains("eval_loss"));
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000010"}) << finished.output;
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

// The commands that the run recommends at its end.
std::string recommended(const Finished& run) {
  const std::string command = "  sluice ";
  std::string told;
  for (const std::string& line : run.lines()) {
    if (line.starts_with(command)) {
      told += line.substr(command.size(), line.find(' ', command.size()) - command.size()) + " ";
    }
  }
  return told;
}

TEST_F(Resume, FilesThatAreGoneAreSaidOnceAndRecommendNothing) {
  const auto run_and_remove = [&](const std::vector<std::string>& names) {
    auto run = std::async(std::launch::async, [&] {
      return train("run", "", {{"SLUICE_FAILPOINTS", "engine.step:delay=150"}});
    });
    const Finished done = during(
        std::move(run), [&] { return scratch_.metrics("run").size() >= 3; },
        [&] {
          for (const std::string& name : names) {
            const std::string path = scratch_.path("run/" + name);
            std::filesystem::rename(path, path + ".away");
          }
        });
    EXPECT_EQ(done.exit_code, 0) << done.output;
    return done;
  };
  const std::string gone = "run/metrics.jsonl was removed or moved while the run writes it";
  const Finished moved = run_and_remove({"metrics.jsonl"});
  EXPECT_EQ(count_of(moved.output, gone), 1U) << moved.output;
  EXPECT_EQ(recommended(moved), "generate eval checkpoint ") << moved.output;
  EXPECT_EQ(count_of(scratch_.read("run/metrics.jsonl.away"), "\n"), 10U);
  const Finished other = run_and_remove({"config.yaml"});
  EXPECT_EQ(count_of(other.output, gone), 0U) << other.output;
  EXPECT_EQ(recommended(other), "generate report checkpoint ") << other.output;
}

// On one host a file that is not seen was removed.
TEST_F(Resume, ACheckpointWhoseFileIsRemovedIsNotSaidToLieOnAnotherHost) {
  auto run = std::async(std::launch::async, [&] {
    return train(
        "run", "--set checkpoint.every=4",
        {{"SLUICE_FAILPOINTS", "engine.step:delay=100;checkpoint.fsync@1:rank=1:delay=1500"}});
  });
  const std::string file = scratch_.path("run/checkpoints/step-00000004/rank-00000.safetensors");
  const Finished done = during(
      std::move(run), [&] { return std::filesystem::exists(file); },
      [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(700));  // rank 0 writes the file
        std::filesystem::remove(file);
      });
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_NE(done.output.find("checkpoint of step 4 was not saved"), std::string::npos)
      << done.output;
  EXPECT_NE(done.output.find("it was removed before the checkpoint was complete"),
            std::string::npos)
      << done.output;
  EXPECT_EQ(done.output.find("hosts share"), std::string::npos) << done.output;
}

}  // namespace
}  // namespace sluice::testing
