// output.tensorboard: the event files of a run, of one that was resumed and of one begun again.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/tier_runs.hpp"
#include "tests/runtime/observe/event_reader.hpp"

namespace sluice::testing {
namespace {

class TensorBoard : public ::testing::Test {
 protected:
  TensorBoard() { write_tiny(scratch_); }

  Finished train(const std::string& arguments,
                 const std::map<std::string, std::string>& environment = {}) {
    return run_program(scratch_,
                       "train tiny.yaml --set output.tensorboard=true --set train.steps=7"
                       " --set model.hidden=32 --set model.seq=32 --set train.eval_steps=1"
                       " --set checkpoint.every=3 --set checkpoint.async=false " +
                           arguments,
                       environment);
  }
  std::vector<std::string> event_files() const {
    std::vector<std::string> names = files_in(scratch_, "run/tensorboard");
    std::sort(names.begin(), names.end());
    return names;
  }
  // As TensorBoard reads a folder: file by file, and a start forgets its step and later ones.
  std::map<std::int64_t, std::map<std::string, float>> shown() const {
    std::map<std::int64_t, std::map<std::string, float>> steps;
    for (const std::string& name : event_files()) {
      for (const ReadEvent& event : events_of(scratch_.path("run/tensorboard/" + name))) {
        if (event.starts) steps.erase(steps.lower_bound(event.step), steps.end());
        if (event.values.empty()) continue;
        EXPECT_FALSE(steps.contains(event.step)) << "step " << event.step << " is there twice";
        steps[event.step] = event.values;
      }
    }
    return steps;
  }
  void expect_shows_metrics() const {
    const auto steps = shown();
    const std::vector<nlohmann::json> lines = scratch_.metrics("run");
    ASSERT_EQ(steps.size(), lines.size());
    for (const nlohmann::json& line : lines) {
      const std::int64_t step = line.at("step");
      ASSERT_TRUE(steps.contains(step)) << step;
      const std::map<std::string, float>& values = steps.at(step);
      EXPECT_EQ(values.at("train/loss"), line.at("loss").get<float>()) << step;
      EXPECT_EQ(values.at("train/lr"), line.at("lr").get<float>()) << step;
      EXPECT_EQ(values.at("perf/step_ms"), line.at("step_ms").get<float>()) << step;
      EXPECT_EQ(values.contains("eval/loss"), line.contains("eval_loss")) << step;
    }
    EXPECT_EQ(steps.at(7).at("eval/loss"), lines.back().at("eval_loss").get<float>());
  }

  Scratch scratch_;
};

TEST_F(TensorBoard, ShowsARunThatWasResumedAsOne) {
  const Finished killed = train("", {{"SLUICE_FAILPOINTS", "engine.step@6:rank=1:kill"}});
  ASSERT_EQ(killed.exit_code, 5) << killed.output;
  EXPECT_EQ(event_files().size(), 1U);
  const Finished resumed = train("--resume auto");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(event_files().size(), 2U);
  expect_shows_metrics();
}

TEST_F(TensorBoard, ShowsTheLastOfRunsBegunAnew) {
  ASSERT_EQ(train("--set train.steps=9").exit_code, 0);
  std::filesystem::remove_all(scratch_.path("run/checkpoints"));
  const Finished anew = train("");
  ASSERT_EQ(anew.exit_code, 0) << anew.output;
  EXPECT_EQ(event_files().size(), 2U);
  expect_shows_metrics();
}

TEST_F(TensorBoard, IsNotThereUnasked) {
  const Finished run = train("--set output.tensorboard=false --set train.steps=1");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("run/tensorboard")));
}

}  // namespace
}  // namespace sluice::testing
