#include "runtime/observe/metrics_writer.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tests/runtime/observe/sample_record.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

using testing::record_of;

TEST(Metrics, LineByTheContract) {
  EXPECT_EQ(
      to_json_line(record_of(7)),
      R"({"step":7,"loss":3.5,"grad_norm":0.25,"lr":0.00029,"loss_scale":65536.0,)"
      R"("skipped":false,"tokens":57344,"step_ms":412.0,"tokens_per_s":19900.5,"tflops":1.5,)"
      R"("mfu":0.41,"memory":{"device_peak":1,"host_peak":2,"pinned":3,"nvme":5000000000000,"resident_peak":6},)"
      R"("timers_ms":{"forward":1.0,"backward":2.0,"comm":3.0,"optimizer":4.0,"io":5.0,)"
      R"("data":6.0}})");
}

TEST(Metrics, TheShareOfACardIsThereWhereTheCardIsKnown) {
  StepRecord record = record_of(3);
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(record)).contains("mfu_of_card"));
  record.mfu_of_card = 0.25;
  const auto line = nlohmann::json::parse(to_json_line(record));
  EXPECT_EQ(line["mfu_of_card"], 0.25);
  EXPECT_EQ(line["mfu"], 0.41);
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
  EXPECT_FALSE(object.contains("eval_losses"));
  record.eval_losses = {{"code", 1.5}, {"prose", 2.5}};
  EXPECT_EQ(nlohmann::json::parse(to_json_line(record))["eval_losses"],
            nlohmann::json({{"code", 1.5}, {"prose", 2.5}}));
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

// The size limit of files stands in for a full disk.
class FullAt {
 public:
  explicit FullAt(std::size_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit tight{.rlim_cur = bytes, .rlim_max = former_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &tight);
  }
  ~FullAt() {
    ::setrlimit(RLIMIT_FSIZE, &former_);
    ::signal(SIGXFSZ, handler_);
  }
  FullAt(const FullAt&) = delete;
  FullAt& operator=(const FullAt&) = delete;

 private:
  rlimit former_{};
  sighandler_t handler_;
};

// Half of a line fits.
TEST(Metrics, NoSpaceLeavesWholeLinesAndKeepsTheOthersUntilThereIs) {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsWriter writer(path);
  writer.write(record_of(1));
  {
    const FullAt disk(lines({1}).size() * 3 / 2);
    writer.write(record_of(2));
    writer.write(record_of(3));
    EXPECT_EQ(text_of(path), lines({1}));
  }
  writer.write(record_of(4));
  EXPECT_EQ(text_of(path), lines({1, 2, 3, 4}));
}

TEST(Metrics, WhatCannotBeWrittenTakesBoundedMemory) {
  const TemporaryFolder folder;
  MetricsWriter writer(folder.file("metrics.jsonl"));
  const std::size_t line = lines({1}).size();
  const FullAt disk(line / 2);
  for (std::size_t i = 0; i < 2 * MetricsWriter::kMostKept / line; ++i) writer.write(record_of(1));
  EXPECT_LE(writer.kept_bytes(), MetricsWriter::kMostKept);
  EXPECT_GT(writer.kept_bytes(), MetricsWriter::kMostKept - 2 * line);
}

TEST(Metrics, FolderThatIsNotThere) {
  EXPECT_THROW(MetricsWriter("/nonexistent/metrics.jsonl"), IoError);
}

}  // namespace
}  // namespace sluice
