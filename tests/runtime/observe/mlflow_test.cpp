// MLflow's file store, as MLflow's FileStore reads it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "runtime/observe/event_file.hpp"
#include "runtime/observe/mlflow_text.hpp"
#include "runtime/observe/mlflow_writer.hpp"
#include "tests/runtime/observe/sample_record.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {
namespace fs = std::filesystem;

class Mlflow : public ::testing::Test {
 protected:
  Mlflow() { fs::create_directories(output_); }
  ~Mlflow() override {
    arm_failpoints("");
    set_log_sink({});
  }

  MlflowOptions options() const {
    return {.dir = folder_.file("mlruns"),
            .output_dir = output_,
            .source = "tiny.yaml",
            .params = {{"train.steps", "30"}, {"output.mlflow", "mlruns"}}};
  }
  static std::vector<TimedRecord> steps(int first, int last) {
    std::vector<TimedRecord> records;
    for (int step = first; step <= last; ++step) {
      StepRecord record = testing::record_of(step);
      record.loss = 1.0 / step;
      records.push_back({.unix_ms = 1'700'000'000'000 + step, .record = record});
    }
    return records;
  }
  // Steps of a metric's lines.
  static std::vector<std::int64_t> steps_of(const std::string& run, const std::string& metric) {
    std::vector<std::int64_t> found;
    std::istringstream lines(text_of(run + "/metrics/" + metric));
    for (std::string line; std::getline(lines, line);) found.push_back(step_of_line(line));
    return found;
  }
  static std::string status_of(const std::string& run) {
    return meta_value(text_of(run + "/meta.yaml"), "status");
  }
  std::string noted_run() const {
    std::string path = text_of(output_ + "/mlflow-run");
    if (!path.empty()) path.pop_back();
    return path;
  }

  const TemporaryFolder folder_;
  const std::string output_ = (folder_.path() / "runs" / "a b").string();
};

TEST_F(Mlflow, StoreHasTheLayoutOfMlflow) {
  MlflowRun run(options(), 1);
  run.append(steps(1, 2));
  run.end(MlflowStatus::kFinished);
  const fs::path path(run.path());
  EXPECT_EQ(text_of(output_ + "/mlflow-run"), run.path() + "\n");
  const std::string meta = text_of(path / "meta.yaml");
  EXPECT_EQ(meta_value(meta, "run_id"), path.filename().string());
  EXPECT_EQ(meta_value(meta, "run_uuid"), path.filename().string());
  EXPECT_EQ(path.filename().string().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(path.filename().string().size(), 32U);
  EXPECT_EQ(meta_value(meta, "experiment_id"), path.parent_path().filename().string());
  EXPECT_EQ(meta_value(meta, "run_name"), "a b");
  EXPECT_EQ(meta_value(meta, "status"), "3");
  EXPECT_GE(std::stoll(meta_value(meta, "end_time")), std::stoll(meta_value(meta, "start_time")));
  EXPECT_EQ(meta_value(meta, "artifact_uri"), "file://" + path.string() + "/artifacts");
  const std::string experiment = text_of(path.parent_path() / "meta.yaml");
  EXPECT_EQ(meta_value(experiment, "name"), kMlflowExperiment);
  EXPECT_EQ(meta_value(experiment, "experiment_id"), path.parent_path().filename().string());
  EXPECT_EQ(meta_value(text_of(folder_.path() / "mlruns/0/meta.yaml"), "name"), "Default");
  EXPECT_EQ(text_of(path / "params/train.steps"), "30");
  EXPECT_EQ(text_of(path / "tags/mlflow.runName"), "a b");
  EXPECT_EQ(text_of(path / "tags/sluice.output_dir"), output_);
}

TEST_F(Mlflow, MetricsAreTheValuesOfMetricsJsonl) {
  MlflowRun run(options(), 1);
  const std::vector<TimedRecord> records = steps(1, 3);
  run.append(records);
  for (const TimedRecord& timed : records) {
    for (const EventScalar& scalar : event_scalars(timed.record)) {
      std::istringstream lines(text_of(run.path() + "/metrics/" + mlflow_name(scalar.tag)));
      bool found = false;
      std::int64_t time = 0;
      std::int64_t step = 0;
      for (std::string value; lines >> time >> value >> step;) {
        if (step != timed.record.step) continue;
        found = true;
        EXPECT_EQ(time, timed.unix_ms);
        EXPECT_EQ(std::stod(value), scalar.value) << scalar.tag;
      }
      EXPECT_TRUE(found) << scalar.tag << " step " << timed.record.step;
    }
  }
}

TEST_F(Mlflow, NotANumberIsSaidAsPythonReadsIt) {
  MlflowRun run(options(), 1);
  std::vector<TimedRecord> records = steps(1, 1);
  records[0].record.loss = std::numeric_limits<double>::quiet_NaN();
  records[0].record.grad_norm = std::numeric_limits<double>::infinity();
  run.append(records);
  EXPECT_EQ(text_of(run.path() + "/metrics/train/loss"), "1700000000001 nan 1\n");
  EXPECT_EQ(text_of(run.path() + "/metrics/train/grad_norm"), "1700000000001 inf 1\n");
}

TEST(MlflowText, NamesKeepToWhatMlflowAllows) {
  EXPECT_EQ(mlflow_name("train/loss"), "train/loss");
  EXPECT_EQ(mlflow_name("eval/loss"), "eval/loss");
  // Beside the file eval/loss there can be no folder of its name.
  EXPECT_EQ(mlflow_name("eval/loss/code"), "eval/loss.code");
  const std::string a = mlflow_name("eval/loss/a/..\xc3\xa4");
  const std::string o = mlflow_name("eval/loss/a/..\xc3\xb6");
  EXPECT_TRUE(a.starts_with("eval/loss.a_..__-")) << a;
  EXPECT_NE(a, o);
  EXPECT_LE(mlflow_name("eval/loss/" + std::string(400, 'x')).size(), 250U);
}

TEST(MlflowText, ValuesAreUtf8AndOfALengthThatMlflowTakes) {
  EXPECT_EQ(mlflow_value("[0.9, 0.95]"), "[0.9, 0.95]");
  EXPECT_EQ(mlflow_value("gr\xc3\xbc\xff\xc3"), "gr\xc3\xbc??");
  EXPECT_EQ(mlflow_value(std::string(6000, 'x')), std::string(6000, 'x'));
  EXPECT_EQ(mlflow_value(std::string(6001, 'x')), std::string(5997, 'x') + "...");
  std::string wide;
  for (int i = 0; i < 4000; ++i) wide += "\xc3\xbc";
  const std::string cut = mlflow_value(wide);
  EXPECT_LE(cut.size(), 6000U);
  EXPECT_EQ(cut.substr(cut.size() - 5), "\xc3\xbc...");
}

TEST(MlflowText, UrisAndMetaKeepAnyPath) {
  EXPECT_EQ(file_uri("/a b/%\xc3\xa4"), "file:///a%20b/%25%C3%A4");
  const std::string meta = "name: \"x: \\\"y\\\"\"\nstatus: 1\nend_time: null\n";
  const std::string changed = with_meta_value(meta, "status", "3");
  EXPECT_EQ(changed, "name: \"x: \\\"y\\\"\"\nstatus: 3\nend_time: null\n");
  EXPECT_EQ(with_meta_value("a: 1", "b", "2"), "a: 1\nb: 2\n");
  EXPECT_EQ(experiment_id_of("sluice").size(), 18U);
}

TEST_F(Mlflow, AResumedRunGoesOnInItsRunWithoutDoubleSteps) {
  std::string path;
  {
    MlflowRun run(options(), 1);
    run.append(steps(1, 9));
    path = run.path();
  }
  end_mlflow_run(output_,
                 MlflowStatus::kFailed);  // as the launcher does for a rank that was killed
  EXPECT_EQ(status_of(path), "4");
  std::ofstream(path + "/metrics/train/loss", std::ios::app) << "1700000000010 3.2";  // cut short
  std::ofstream(path + "/metrics/eval/late") << "1700000000010 1 8\n";
  MlflowOptions changed = options();
  changed.params[0].second = "40";
  MlflowRun run(changed, 7);
  EXPECT_EQ(run.path(), path);
  EXPECT_EQ(status_of(path), "1");
  EXPECT_EQ(meta_value(text_of(path + "/meta.yaml"), "end_time"), "null");
  EXPECT_EQ(text_of(path + "/params/train.steps"), "40");
  // MLflow cannot read a run with an empty metric.
  EXPECT_FALSE(fs::exists(path + "/metrics/eval/late"));
  run.append(steps(7, 8));
  EXPECT_EQ(steps_of(path, "train/loss"), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

// More lines than the first look at a file's end takes.
TEST_F(Mlflow, AResumeFindsItsStepInALongMetric) {
  std::string path;
  {
    MlflowRun run(options(), 1);
    run.append(steps(1, 20000));
    path = run.path();
  }
  for (const int first : {19999, 2000, 2}) {
    MlflowRun run(options(), first);
    const std::vector<std::int64_t> left = steps_of(path, "train/loss");
    ASSERT_EQ(left.size(), static_cast<std::size_t>(first - 1));
    EXPECT_EQ(left.back(), first - 1);
  }
}

TEST_F(Mlflow, ARunBegunAnewOrElsewhereOrDeletedIsANewRun) {
  const std::string first = MlflowRun(options(), 1).path();
  const std::string second = MlflowRun(options(), 1).path();
  EXPECT_NE(first, second);
  EXPECT_EQ(fs::path(first).parent_path(), fs::path(second).parent_path());  // one experiment
  MlflowOptions elsewhere = options();
  elsewhere.dir = folder_.file("other");
  const std::string third = MlflowRun(elsewhere, 5).path();
  EXPECT_TRUE(third.starts_with(folder_.file("other")));
  const std::string meta = text_of(third + "/meta.yaml");
  std::ofstream(third + "/meta.yaml") << with_meta_value(meta, "lifecycle_stage", "deleted");
  EXPECT_NE(MlflowRun(elsewhere, 5).path(), third);
}

TEST_F(Mlflow, AnExperimentThatMlflowMadeIsFound) {
  fs::create_directories(folder_.path() / "mlruns/77");
  std::ofstream(folder_.path() / "mlruns/77/meta.yaml")
      << "artifact_location: file:///x\nexperiment_id: '77'\nlifecycle_stage: active\nname: "
         "sluice\n";
  EXPECT_EQ(fs::path(MlflowRun(options(), 1).path()).parent_path().filename(), "77");
}

TEST_F(Mlflow, TheLauncherMarksOnlyARunThatIsRunning) {
  MlflowRun run(options(), 1);
  run.end(MlflowStatus::kKilled);
  end_mlflow_run(output_, MlflowStatus::kFailed);
  EXPECT_EQ(status_of(run.path()), "5");
  end_mlflow_run(folder_.file("nothing"), MlflowStatus::kFailed);
}

class MlflowWriting : public Mlflow {
 protected:
  MlflowWriting() {
    set_log_sink([this](LogLevel, std::string_view line) { said_.emplace_back(line); });
  }
  std::vector<std::string> said_;
};

TEST_F(MlflowWriting, WritesAllStepsAndTheStatus) {
  {
    MlflowWriter writer(options(), 1);
    for (const TimedRecord& timed : steps(1, 50)) writer.write(timed.record);
    writer.end(MlflowStatus::kFinished);
  }
  EXPECT_EQ(status_of(noted_run()), "3");
  EXPECT_EQ(steps_of(noted_run(), "train/loss").size(), 50U);
  { const MlflowWriter failed(options(), 51); }
  EXPECT_EQ(status_of(noted_run()), "4");
  EXPECT_TRUE(said_.empty());
}

// The file's size limit stands in for a full disk.
TEST_F(MlflowWriting, AFullDiskIsSaidOnceAndTheStepsComeLater) {
  {
    MlflowRun begun(options(), 1);
    begun.append(steps(1, 200));
  }
  MlflowWriter writer(options(), 201);
  rlimit former{};
  ::getrlimit(RLIMIT_FSIZE, &former);
  const rlimit tight{.rlim_cur = 3000, .rlim_max = former.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &tight);
  for (const TimedRecord& timed : steps(201, 203)) {
    writer.write(timed.record);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ::setrlimit(RLIMIT_FSIZE, &former);
  ::signal(SIGXFSZ, handler);
  writer.write(steps(204, 204)[0].record);  // there is room again
  writer.end(MlflowStatus::kFinished);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("File too large. The run goes on"), std::string::npos) << said_[0];
  std::vector<std::int64_t> all(204);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i + 1);
  EXPECT_EQ(steps_of(noted_run(), "train/loss"), all);
}

TEST_F(MlflowWriting, AStoreThatCannotBeMadeIsSaidOnce) {
  std::ofstream(folder_.file("mlruns")) << "a file\n";
  MlflowWriter writer(options(), 1);
  for (const TimedRecord& timed : steps(1, 5)) writer.write(timed.record);
  writer.end(MlflowStatus::kFinished);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("output.mlflow: cannot create"), std::string::npos) << said_[0];
}

TEST_F(MlflowWriting, ASlowDiskDelaysNeitherStepsNorTheEnd) {
  arm_failpoints("mlflow.open:delay=60000");
  const auto begin = std::chrono::steady_clock::now();
  {
    MlflowWriter writer(options(), 1, std::chrono::milliseconds(50));
    const int many = static_cast<int>(MlflowWriter::kMostQueued) + 500;
    for (const TimedRecord& timed : steps(1, many)) writer.write(timed.record);
    writer.end(MlflowStatus::kFinished);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  ASSERT_EQ(said_.size(), 2U);
  EXPECT_NE(said_[0].find("slower than the steps"), std::string::npos) << said_[0];
  EXPECT_NE(said_[1].find("did not take the last steps"), std::string::npos) << said_[1];
}

}  // namespace
}  // namespace sluice
