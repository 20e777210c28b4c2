#include "runtime/report/run_files.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using Json = nlohmann::json;

TEST(RunFiles, EventLines) {
  const auto event = parse_event_line(R"({"time":12.5,"event":"save","step":3,"text":"saved"})");
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, "save");
  EXPECT_EQ(event->step, 3);
  EXPECT_EQ(event->unix_seconds, 12.5);
  EXPECT_EQ(parse_event_line(R"({"event":"x","step":"3"})")->step, -1);
  for (const char* text : {"", "[]", "{}", "{\"event\":5}", "{\"event\":\"x\""}) {
    EXPECT_FALSE(parse_event_line(text).has_value()) << text;
  }
}

TEST(RunFiles, Plans) {
  const auto plan = parse_plan(
      R"({"tiers":{"device":{"peak":5,"budget":0,"by_tag":{"params":5,"odd":null}},"nvme":3},)"
      R"("step_ms":1.5})");
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->tiers.size(), 1U);
  EXPECT_EQ(plan->tiers[0].by_tag.size(), 1U);
  EXPECT_EQ(plan->step_ms, 1.5);
  for (const char* text : {"", "[]", "{\"tiers\":5}"}) EXPECT_FALSE(parse_plan(text)) << text;
}

Json slice(int pid, int tid, double begin, double length, const std::string& name) {
  return {{"ph", "X"},
          {"pid", pid},
          {"tid", tid},
          {"ts", begin},
          {"dur", length},
          {"name", name},
          {"args", {{"wire_bytes", 10}}}};
}
Json name(const char* kind, int pid, int tid, const std::string& text) {
  return {{"ph", "M"}, {"name", kind}, {"pid", pid}, {"tid", tid}, {"args", {{"name", text}}}};
}

// The plan of a lane stands below the lane's measurement.
TEST(RunFiles, ATraceAsLanes) {
  const Json trace{{"traceEvents",
                    {name("process_name", 0, 0, "rank 0"), name("process_name", 1, 0, "predicted"),
                     name("thread_name", 0, 0, "compute"), name("thread_name", 1, 0, "compute"),
                     name("thread_name", 0, 2, "comm"), slice(0, 2, 5, 10, "Gather 1"),
                     slice(0, 0, 10, 20, "Forward 1"), slice(1, 0, 0, 40, "Backward 1"),
                     slice(0, 0, 30, 0, "takes no time"), 5}}};
  const Json lanes = Json::parse(timeline_json(trace.dump()));
  ASSERT_EQ(lanes["rows"].size(), 3U);
  EXPECT_EQ(lanes["rows"][0]["name"], "compute");
  EXPECT_EQ(lanes["rows"][1]["name"], "plan compute");
  EXPECT_EQ(lanes["rows"][2]["name"], "comm");
  EXPECT_DOUBLE_EQ(lanes["end_s"].get<double>(), 40e-6);
  EXPECT_EQ(lanes["names"], (Json{"Forward 1", "Backward 1", "Gather 1"}));
  EXPECT_EQ(lanes["bars"]["begin"][0], 2'500'000);
  EXPECT_EQ(lanes["bars"]["length"][0], 5'000'000);
  EXPECT_EQ(lanes["bars"]["bytes"][2], 10);
  const std::size_t kind = lanes["bars"]["kind"][1];
  EXPECT_EQ(lanes["kinds"][kind]["letter"], "B");
}

TEST(RunFiles, NoTraces) {
  for (const char* text : {"", "[]", "{\"traceEvents\":[]}", "{\"traceEvents\":[{\"ph\":3}]}",
                           "{\"traceEvents\":[{\"ph\":\"M\"}]}"}) {
    EXPECT_EQ(timeline_json(text), "") << text;
  }
}

// A step of more slices than anyone can see: fewer bars, the same time at work.
TEST(RunFiles, AHundredThousandSlices) {
  Json events = Json::array();
  for (int i = 0; i < 100'000; ++i) events.push_back(slice(0, i % 4, i * 10.0, 5, "Update"));
  const Json lanes = Json::parse(timeline_json(Json{{"traceEvents", events}}.dump()));
  const Json& busy = lanes["bars"]["busy"];
  EXPECT_LE(busy.size(), 6000U);
  EXPECT_GT(busy.size(), 1000U);
  double ticks = 0;
  for (const Json& bar : busy) ticks += bar.get<double>();
  EXPECT_NEAR(ticks / 1e7, 0.5, 0.01);
  EXPECT_NE(lanes["remarks"].dump().find("100000 slices"), std::string::npos);
}

}  // namespace
}  // namespace sluice
