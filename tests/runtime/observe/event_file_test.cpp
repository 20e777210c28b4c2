// What is in the file, beside metrics.jsonl.
#include "runtime/observe/event_file.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/log.hpp"
#include "tests/runtime/observe/event_reader.hpp"
#include "tests/runtime/observe/sample_record.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

using testing::events_of;
using testing::ReadEvent;
using testing::slow_crc;

// Of which each step's differ.
StepRecord varied_record(std::int64_t step) {
  StepRecord record = testing::record_of(step);
  record.loss /= static_cast<double>(step);
  record.skipped = step % 2 == 0;
  record.step_ms = 412.25;
  return record;
}

StepRecord full_record(std::int64_t step) {
  StepRecord record = varied_record(step);
  record.plan_error = PlanError{.device = 0.25, .host = -0.5, .nvme = 0.125, .step_ms = -0.0625};
  record.checkpoint_ms = 17.5;
  record.eval_loss = 2.0;
  record.eval_ppl = std::exp(2.0);
  return record;
}

// "a/b" of the event file: b of section a of the line, a_b, or b itself.
double value_in_line(const nlohmann::json& line, const std::string& tag) {
  const std::size_t slash = tag.find('/');
  const std::string section = tag.substr(0, slash);
  const std::string name = tag.substr(slash + 1);
  const nlohmann::json value = line.contains(section) ? line.at(section).at(name)
                               : section == "eval"    ? line.at("eval_" + name)
                                                      : line.at(name);
  return value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>();
}

std::size_t values_in(const nlohmann::json& line) {
  std::size_t count = 0;
  for (const auto& value : line) count += value.is_object() ? value.size() : 1;
  return count - 1;  // but for the step
}

TEST(Crc32c, KnownValuesAndAnySize) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  std::string bytes;
  for (int size = 0; size < 300; ++size) {
    ASSERT_EQ(crc32c(bytes), slow_crc(bytes)) << size;
    bytes += static_cast<char>(size * 37);
  }
}

TEST(EventFile, SaysWhatMetricsSay) {
  const TemporaryFolder folder;
  EventFile file(folder.file("tensorboard"), "host7", 1);
  const std::vector<StepRecord> records{varied_record(1), full_record(2), varied_record(200),
                                        varied_record(300)};
  for (const StepRecord& record : records) file.write(record);
  const std::vector<ReadEvent> events = events_of(file.path());
  ASSERT_EQ(events.size(), 2 + records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const ReadEvent& event = events[i + 2];
    const auto line = nlohmann::json::parse(to_json_line(records[i]));
    EXPECT_EQ(event.step, records[i].step);
    EXPECT_EQ(event.values.size(), values_in(line));
    for (const auto& [tag, value] : event.values) {
      EXPECT_EQ(value, static_cast<float>(value_in_line(line, tag))) << tag;
    }
  }
  EXPECT_TRUE(events[3].values.contains("train/loss"));
  EXPECT_TRUE(events[3].values.contains("eval/loss"));
}

TEST(EventFile, AFurtherValidationSetHasATagOfItsName) {
  const TemporaryFolder folder;
  EventFile file(folder.file("tensorboard"), "host7", 1);
  StepRecord record = full_record(2);
  record.eval_losses = {{"code", 1.5}, {"prose", 2.5}};
  file.write(record);
  const std::vector<ReadEvent> events = events_of(file.path());
  EXPECT_EQ(events.back().values.at("eval/loss/code"), 1.5F);
  EXPECT_EQ(events.back().values.at("eval/loss/prose"), 2.5F);
}

TEST(EventFile, BeginsWithVersionAndStart) {
  const TemporaryFolder folder;
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const double before = seconds();
  const EventFile file(folder.file("tensorboard"), "host7", 121);
  const std::vector<ReadEvent> events = events_of(file.path());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_FALSE(events[0].starts);
  EXPECT_TRUE(events[1].starts);
  EXPECT_EQ(events[1].step, 121);
  for (const ReadEvent& event : events) {
    EXPECT_GE(event.wall_time, before);
    EXPECT_LE(event.wall_time, seconds());
  }
}

TEST(EventFile, NameSaysWhenAndWhere) {
  const TemporaryFolder folder;
  const EventFile file(folder.file("tensorboard"), "host7", 1);
  const std::string name = std::filesystem::path(file.path()).filename();
  const std::string begin = "events.out.tfevents.";
  ASSERT_TRUE(name.starts_with(begin) && name.ends_with(".host7")) << name;
  const std::string time = name.substr(begin.size(), name.size() - begin.size() - 6);
  EXPECT_EQ(time.find_first_not_of("0123456789"), std::string::npos) << name;
  EXPECT_EQ(time.size(), 10U) << name;
}

// TensorBoard reads them in the order of their names.
TEST(EventFile, RunsOfTheSameSecondAreFilesInOrder) {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int run = 0; run < 3; ++run) {
    EventFile file(folder.file("tensorboard"), "host7", run + 1);
    file.write(varied_record(run + 1));
    paths.push_back(file.path());
  }
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(events_of(paths.at(static_cast<std::size_t>(run))).at(2).step, run + 1);
  }
  EXPECT_LT(paths[0], paths[1]);
  EXPECT_LT(paths[1], paths[2]);
}

TEST(EventFile, WhatIsUnknownIsLeftOut) {
  StepRecord record;
  record.step = 1;
  for (const EventScalar& scalar : event_scalars(record)) {
    EXPECT_FALSE(scalar.tag.starts_with("memory/") || scalar.tag == "perf/mfu") << scalar.tag;
  }
}

TEST(EventFile, NotANumberIsSaid) {
  const TemporaryFolder folder;
  EventFile file(folder.file("tensorboard"), "host7", 1);
  StepRecord record = varied_record(1);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  file.write(record);
  const ReadEvent event = events_of(file.path()).at(2);
  EXPECT_TRUE(std::isnan(event.values.at("train/loss")));
  EXPECT_TRUE(std::isinf(event.values.at("train/grad_norm")));
}

// The file's size limit stands in for a full disk: half of a step fits.
TEST(EventFile, FullDiskIsReportedOnceAndLeavesWholeSteps) {
  const TemporaryFolder folder;
  std::vector<std::string> said;
  set_log_sink([&said](LogLevel, std::string_view line) { said.emplace_back(line); });
  EventFile file(folder.file("tensorboard"), "host7", 1);
  const auto begun = std::filesystem::file_size(file.path());
  file.write(varied_record(1));
  const auto one = std::filesystem::file_size(file.path());
  rlimit former{};
  ::getrlimit(RLIMIT_FSIZE, &former);
  const rlimit tight{.rlim_cur = one + (one - begun) / 2, .rlim_max = former.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &tight);
  file.write(varied_record(2));
  file.write(varied_record(3));
  ::setrlimit(RLIMIT_FSIZE, &former);
  ::signal(SIGXFSZ, handler);
  file.write(varied_record(4));  // there is room again
  set_log_sink({});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0], "cannot write " + file.path() +
                         ": File too large. The run goes on; steps that cannot be written are "
                         "missing in TensorBoard");
  const std::vector<ReadEvent> events = events_of(file.path());
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[3].step, 4);
}

TEST(EventFile, FolderThatCannotBeMade) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("tensorboard")) << "a file\n";
  EXPECT_THROW(EventFile(folder.file("tensorboard"), "host7", 1), IoError);
}

}  // namespace
}  // namespace sluice
