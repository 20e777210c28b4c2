#include "runtime/observe/run_events.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/observe/run_log.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

std::vector<Json> events_of(const std::string& path) {
  std::vector<Json> all;
  std::istringstream in(text_of(path));
  for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
  return all;
}

TEST(RunEvents, ALineHasKindStepTextAndFigures) {
  const RunEvent event{.kind = "save",
                       .text = "step 5 \xff is saved",
                       .step = 5,
                       .more = {{"bytes", std::int64_t{7}}, {"seconds", 0.5}, {"path", "a\"b"}}};
  const Json json = Json::parse(event_line(event, 12.25));
  EXPECT_EQ(json["time"], 12.25);
  EXPECT_EQ(json["event"], "save");
  EXPECT_EQ(json["step"], 5);
  EXPECT_EQ(json["bytes"], 7);
  EXPECT_EQ(json["path"], "a\"b");
  EXPECT_NE(json["text"].get<std::string>().find("is saved"), std::string::npos);
  EXPECT_FALSE(Json::parse(event_line({.kind = "start", .text = ""}, 0)).contains("step"));
}

TEST(RunEvents, LinesWaitForTheFileAndTakeTheStep) {
  const TemporaryFolder folder;
  RunEvents events;
  events.add({.kind = "start", .text = "sluice train"});
  events.open(folder.file("events.jsonl"), true);
  events.set_step(3);
  events.add({.kind = "straggler", .text = "rank 1"});
  events.add({.kind = "save", .text = "saved", .step = 2});
  const std::vector<Json> all = events_of(folder.file("events.jsonl"));
  ASSERT_EQ(all.size(), 3U);
  EXPECT_FALSE(all[0].contains("step"));
  EXPECT_EQ(all[1]["step"], 3);
  EXPECT_EQ(all[2]["step"], 2);
  EXPECT_GT(all[2]["time"].get<double>(), 1.7e9);
}

// A fresh run keeps the former run's file aside, a resumed run goes on with the file, and so does a
// run that the launcher starts again from nothing.
TEST(RunEvents, FormerFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.file("events.jsonl");
  const auto run = [&](bool fresh, const char* text) {
    RunEvents events;
    events.add({.kind = "start", .text = text});
    events.open(path, fresh);
  };
  run(true, "first");
  run(false, "resumed");
  EXPECT_EQ(events_of(path).size(), 2U);
  append_event(path, {.kind = "restart", .text = "rank 1 failed"});
  run(true, "again");
  EXPECT_EQ(events_of(path).size(), 4U);
  run(true, "another run");
  EXPECT_EQ(events_of(path).size(), 1U);
  EXPECT_EQ(events_of(path + ".1").size(), 4U);
}

TEST(RunEvents, ALineThatACrashCutShortDoesNotSwallowTheNext) {
  const TemporaryFolder folder;
  const std::string path = folder.file("events.jsonl");
  for (const bool launcher : {true, false}) {
    std::ofstream(path) << "{\"event\": \"sta";
    if (launcher) {
      append_event(path, {.kind = "end", .text = "rank 0 failed"});
    } else {
      RunEvents events;
      events.add({.kind = "end", .text = "rank 0 failed"});
      events.open(path, false);
    }
    const std::string text = text_of(path);
    EXPECT_EQ(Json::parse(text.substr(text.find('\n') + 1))["event"], "end") << launcher;
  }
}

TEST(RunEvents, WarningsOfTheLogAreEventsOnce) {
  const TemporaryFolder folder;
  RunEvents events;
  events.open(folder.file("events.jsonl"), true);
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  {
    const RunLog log(
        {.also = [&](LogLevel level, std::string_view line) { events.on_log(level, line); }});
    log_info("of no interest");
    events.add({.kind = "straggler", .text = "rank 3 is slow"});
    log_warning("rank 3 is slow");
    log_warning("nearly full");
    log_error("broken");
  }
  (void)::testing::internal::GetCapturedStdout();
  (void)::testing::internal::GetCapturedStderr();
  std::string kinds;
  for (const Json& event : events_of(folder.file("events.jsonl"))) {
    kinds += event["event"].get<std::string>() + " ";
  }
  EXPECT_EQ(kinds, "straggler warning error ");
}

// The file's folder is missing: the log says so once, and nothing is thrown.
TEST(RunEvents, AFileThatCannotBeWrittenEndsNothing) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "gone" / "events.jsonl").string();
  RunEvents events;
  ::testing::internal::CaptureStderr();
  events.open(path, true);
  for (int i = 0; i < 3; ++i) events.add({.kind = "save", .text = "saved"});
  append_event(path, {.kind = "end", .text = ""});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("cannot open " + path), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;  // of open and of append_event
  std::filesystem::create_directory(folder.path() / "gone");
  events.add({.kind = "end", .text = "finished"});
  EXPECT_EQ(events_of(path).size(), 4U);  // those that waited, too
}

}  // namespace
}  // namespace sluice
