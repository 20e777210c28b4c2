#include "runtime/observe/metrics_writer.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 3.5;
  record.grad_norm = 0.25;
  record.lr = 2.9e-4;
  record.loss_scale = 65536;
  record.tokens = 8192 * step;
  record.step_ms = 412;
  record.tokens_per_s = 19900.5;
  record.tflops = 1.5;
  record.mfu = 0.41;
  record.memory = {.device_peak = 1, .host_peak = 2, .pinned = 3, .nvme = 5'000'000'000'000};
  record.timers_ms = {.forward = 1, .backward = 2, .comm = 3, .optimizer = 4, .io = 5, .data = 6};
  return record;
}

TEST(Metrics, LineByTheContract) {
  EXPECT_EQ(
      to_json_line(record_of(7)),
      R"({"step":7,"loss":3.5,"grad_norm":0.25,"lr":0.00029,"loss_scale":65536.0,)"
      R"("skipped":false,"tokens":57344,"step_ms":412.0,"tokens_per_s":19900.5,"tflops":1.5,)"
      R"("mfu":0.41,"memory":{"device_peak":1,"host_peak":2,"pinned":3,"nvme":5000000000000},)"
      R"("timers_ms":{"forward":1.0,"backward":2.0,"comm":3.0,"optimizer":4.0,"io":5.0,)"
      R"("data":6.0}})");
}

TEST(Metrics, PlanErrorHasWhatWasCompared) {
  StepRecord record = record_of(3);
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(record)).contains("plan_error"));
  record.plan_error = PlanError{.device = 0.25, .host = {}, .nvme = {}, .step_ms = -0.125};
  EXPECT_EQ(nlohmann::json::parse(to_json_line(record))["plan_error"],
            nlohmann::json({{"device", 0.25}, {"step_ms", -0.125}}));
}

TEST(Metrics, EvaluationOnlyWhereThereWasOne) {
  StepRecord record = record_of(1);
  record.skipped = true;
  record.eval_loss = 2.0;
  record.eval_ppl = std::exp(2.0);
  const auto object = nlohmann::json::parse(to_json_line(record));
  EXPECT_EQ(object["eval_loss"], 2.0);
  EXPECT_EQ(object["eval_ppl"].get<double>(), std::exp(2.0));
  EXPECT_EQ(object["skipped"], true);
}

TEST(Metrics, DoublesReadBackAsTheyWere) {
  for (const double value :
       {0.1, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 10.824999809265137}) {
    StepRecord record = record_of(1);
    record.loss = value;
    const double back = nlohmann::json::parse(to_json_line(record))["loss"].get<double>();
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
}

TEST(Metrics, WhatJsonCannotSayIsNull) {
  StepRecord record = record_of(1);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  const auto object = nlohmann::json::parse(to_json_line(record));
  EXPECT_TRUE(object["loss"].is_null());
  EXPECT_TRUE(object["grad_norm"].is_null());
}

std::string lines(std::initializer_list<std::int64_t> steps) {
  std::string text;
  for (const std::int64_t step : steps) text += to_json_line(record_of(step)) + "\n";
  return text;
}

TEST(Metrics, AnewKeepsTheFormerFileAside) {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  for (int run = 0; run < 2; ++run) {
    MetricsWriter writer(path);
    writer.write(record_of(1));
    EXPECT_EQ(text_of(path), lines({1}));  // with the system already
    writer.write(record_of(2));
  }
  EXPECT_EQ(text_of(path), lines({1, 2}));
  EXPECT_EQ(text_of(path + ".1"), lines({1, 2}));
}

TEST(Metrics, ResumeDropsWhatIsDoneAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  std::ofstream(path) << lines({1, 2, 3, 4}) << "not json\n"
                      << R"({"step":1,"lo)";
  MetricsWriter writer(path, 3);
  writer.write(record_of(3));
  EXPECT_EQ(text_of(path), lines({1, 2, 3}));
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
}

TEST(Metrics, ResumeWithoutFile) {
  const TemporaryFolder folder;
  MetricsWriter(folder.file("m"), 9).write(record_of(9));
  EXPECT_EQ(text_of(folder.file("m")), lines({9}));
}

// The file's size limit stands in for a full disk: half of a line fits.
TEST(Metrics, NoSpaceLeavesWholeLines) {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsWriter writer(path);
  writer.write(record_of(1));
  rlimit former{};
  ::getrlimit(RLIMIT_FSIZE, &former);
  const rlimit tight{.rlim_cur = lines({1}).size() * 3 / 2, .rlim_max = former.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &tight);
  EXPECT_THROW(writer.write(record_of(2)), IoError);
  ::setrlimit(RLIMIT_FSIZE, &former);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(text_of(path), lines({1}));
}

TEST(Metrics, FolderThatIsNotThere) {
  EXPECT_THROW(MetricsWriter("/nonexistent/metrics.jsonl"), IoError);
}

}  // namespace
}  // namespace sluice
