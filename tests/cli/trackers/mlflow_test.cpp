// output.mlflow: the store of a run that was killed and resumed, of one that was stopped, and of
// one whose store cannot be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/tier_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MlflowRuns : public ::testing::Test {
 protected:
  MlflowRuns() { write_tiny(scratch_); }

  Finished train(const std::string& arguments,
                 const std::map<std::string, std::string>& environment = {}) {
    return run_program(scratch_,
                       "train tiny.yaml --set output.mlflow=mlruns --set train.steps=7"
                       " --set model.hidden=32 --set model.seq=32 --set train.eval_steps=1"
                       " --set checkpoint.every=3 --set checkpoint.async=false " +
                           arguments,
                       environment);
  }
  // The run's folder, from the scratch folder.
  std::string folder() const {
    std::string path = scratch_.read("run/mlflow-run");
    path.pop_back();
    return std::filesystem::relative(path, scratch_.path());
  }
  std::string status() const {
    const std::string meta = scratch_.read(folder() + "/meta.yaml");
    const std::size_t at = meta.find("\nstatus: ") + 9;
    return meta.substr(at, meta.find('\n', at) - at);
  }
  // Values by step, as text; fails at a step that is there twice.
  std::map<std::int64_t, std::string> metric(const std::string& name) const {
    std::map<std::int64_t, std::string> values;
    std::istringstream lines(scratch_.read(folder() + "/metrics/" + name));
    std::int64_t time = 0;
    std::int64_t step = 0;
    for (std::string value; lines >> time >> value >> step;) {
      EXPECT_TRUE(values.emplace(step, value).second) << name << " step " << step;
    }
    return values;
  }

  Scratch scratch_;
};

TEST_F(MlflowRuns, AKilledRunIsMarkedAndGoesOnWithoutDoubleSteps) {
  const Finished killed =
      train("", {{"SLUICE_FAILPOINTS", "engine.step@5:delay=3000;engine.step@6:kill"}});
  ASSERT_EQ(killed.exit_code, 5) << killed.output;
  const std::string first = folder();
  EXPECT_EQ(status(), "4");
  const Finished resumed = train("--resume auto");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(folder(), first);
  EXPECT_EQ(status(), "3");
  EXPECT_EQ(scratch_.read(first + "/params/train.steps"), "7");
  EXPECT_EQ(scratch_.read(first + "/params/model.hidden"), "32");
  const auto losses = metric("train/loss");
  const std::vector<nlohmann::json> lines = scratch_.metrics("run");
  ASSERT_EQ(losses.size(), 7U);
  ASSERT_EQ(lines.size(), 7U);
  for (const nlohmann::json& line : lines) {
    EXPECT_EQ(std::stod(losses.at(line.at("step"))), line.at("loss").get<double>());
  }
  EXPECT_EQ(std::stod(metric("eval/loss").at(7)), lines.back().at("eval_loss").get<double>());
}

TEST_F(MlflowRuns, ARunThatFailsIsMarkedAndOneBegunAnewIsAnother) {
  const Finished failed = train("", {{"SLUICE_FAILPOINTS", "engine.forward.2.1:rank=1:nan"}});
  ASSERT_EQ(failed.exit_code, 5) << failed.output;
  EXPECT_EQ(status(), "4");
  const std::string first = folder();
  ASSERT_EQ(train("").exit_code, 0);
  EXPECT_NE(folder(), first);
  EXPECT_EQ(status(), "3");
}

TEST_F(MlflowRuns, ARunThatIsStoppedIsMarkedAsKilled) {
  const Finished stopped = train("--set train.steps=1000000 --set checkpoint.time_limit=4s");
  ASSERT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_EQ(status(), "5");
}

TEST_F(MlflowRuns, AStoreThatCannotBeMadeIsAWarning) {
  const Finished run = train("--set output.mlflow=tiny.yaml/runs");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("output.mlflow: cannot create tiny.yaml/runs: Not a directory; "
                                    "a part of the path is a file. The run goes on"));
  EXPECT_EQ(scratch_.metrics("run").size(), 7U);
}

TEST_F(MlflowRuns, AStoreThatHangsIsLeftBehind) {
  const Finished run = train("", {{"SLUICE_FAILPOINTS", "mlflow.append:delay=600000"}});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("the store did not take the last steps"));
  EXPECT_EQ(scratch_.metrics("run").size(), 7U);
}

}  // namespace
}  // namespace sluice::testing
