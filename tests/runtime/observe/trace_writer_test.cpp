#include "runtime/observe/trace_writer.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

std::vector<TraceEvent> example_events() {
  return {
      {.name = "Forward(block 3)",
       .lane = "compute",
       .rank = 1,
       .start_us = 10.5,
       .duration_us = 4,
       .args = {{"bytes", std::int64_t{1} << 40}, {"rate", 0.5}, {"unit", "block 3"}}},
      {.name = "Gather", .lane = "comm", .rank = 0, .start_us = 0, .duration_us = 8, .args = {}},
      {.name = "x", .lane = "other", .rank = 1, .start_us = 1, .duration_us = 1, .args = {}}};
}

Json record(const Json& trace, const std::string& name, int pid, int tid) {
  for (const Json& entry : trace["traceEvents"]) {
    if (entry["name"] == name && entry["pid"] == pid && entry["tid"] == tid) return entry;
  }
  return {};
}

TEST(Trace, SlicesAndNames) {
  const Json trace = Json::parse(format_trace(example_events(), {.lanes = {"compute", "comm"}}));
  const Json slice = record(trace, "Forward(block 3)", 1, 0);
  EXPECT_EQ(slice["ph"], "X");
  EXPECT_EQ(slice["ts"], 10.5);
  EXPECT_EQ(slice["dur"], 4);
  EXPECT_EQ(slice["args"], Json({{"bytes", 1099511627776}, {"rate", 0.5}, {"unit", "block 3"}}));
  EXPECT_EQ(record(trace, "Gather", 0, 1)["ts"], 0);
  EXPECT_EQ(record(trace, "x", 1, 2)["ph"], "X");
  EXPECT_EQ(record(trace, "process_name", 1, 0)["args"]["name"], "rank 1");
  EXPECT_EQ(record(trace, "thread_name", 0, 1)["args"]["name"], "comm");
  EXPECT_EQ(record(trace, "thread_name", 1, 2)["args"]["name"], "other");
  EXPECT_EQ(record(trace, "thread_sort_index", 1, 2)["args"]["sort_index"], 2);
  EXPECT_TRUE(record(trace, "thread_name", 0, 0).is_null());  // rank 0 has no compute track
}

TEST(Trace, ProcessesMayHaveNamesOfTheirOwn) {
  TraceLayout layout;
  layout.process_names[1] = "predicted";
  const Json trace = Json::parse(format_trace(example_events(), layout));
  EXPECT_EQ(record(trace, "process_name", 0, 0)["args"]["name"], "rank 0");
  EXPECT_EQ(record(trace, "process_name", 1, 0)["args"]["name"], "predicted");
}

TEST(Trace, EmptyAndNamesThatAreNotUtf8) {
  EXPECT_EQ(Json::parse(format_trace({}))["traceEvents"], Json::array());
  const std::vector<TraceEvent> odd{{.name = "a\xff\"", .lane = "l", .args = {}}};
  EXPECT_EQ(Json::parse(format_trace(odd))["traceEvents"].size(), 4u);
}

TEST(Trace, FileIsReplacedInOneStep) {
  const TemporaryFolder folder;
  const std::string path = folder.file("trace.json");
  write_trace(path, {});
  write_trace(path, example_events());
  EXPECT_EQ(text_of(path), format_trace(example_events()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_THROW(write_trace("/nonexistent/trace.json", {}), IoError);
}

}  // namespace
}  // namespace sluice
