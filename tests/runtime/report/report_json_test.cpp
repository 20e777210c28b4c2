#include "runtime/report/report_json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/page/page_check.hpp"
#include "tests/runtime/report/run_folder.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::data_of;
using testing::RunFolder;
using testing::step_text;
using testing::tag_mistake;

TEST(ReportJson, ARun) {
  const RunFolder folder;
  std::string metrics;
  for (int step = 1; step <= 5; ++step) {
    metrics += step_text(step, 10.25 - step, step == 4 ? ",\"eval_loss\":6" : "");
  }
  folder.append("metrics.jsonl", metrics);
  folder.append("events.jsonl",
                "{\"event\":\"start\",\"text\":\"train\"}\n"
                "{\"event\":\"save\",\"step\":3,\"text\":\"on\",\"time\":5}\n"
                "{\"event\":\"restart\",\"text\":\"rank 1\"}\n");
  const RunReader reader(folder.path());
  const Json run = Json::parse(runs_json({&reader.data()}))["runs"][0];
  EXPECT_EQ(run["x"]["step"], (Json{1, 2, 3, 4, 5}));
  EXPECT_EQ(run["x"]["tokens"], (Json{100, 200, 300, 400, 500}));
  EXPECT_EQ(run["curves"]["loss"]["mean"], (Json{9.25, 8.25, 7.25, 6.25, 5.25}));
  EXPECT_EQ(run["curves"]["grad_norm"]["constant"], 1.5);
  EXPECT_FALSE(run["curves"].contains("mfu"));
  EXPECT_EQ(run["evaluations"]["x"]["tokens"], Json{400});
  EXPECT_EQ(run["marks"]["list"][0]["kind"], "start");
  EXPECT_EQ(run["marks"]["list"][2]["kind"], "restart");
  EXPECT_EQ(run["marks"]["x"]["step"], (Json{0, 3, 3}));
  EXPECT_EQ(run["marks"]["x"]["tokens"], (Json{0, 300, 300}));
  EXPECT_EQ(run["medians"]["timers_ms.forward"], 12.5);
}

// 100 000 steps: a page of a megabyte or two with the highest value in it.
TEST(ReportJson, ALongRunStaysSmall) {
  const RunFolder folder;
  std::string metrics;
  for (int step = 1; step <= 100'000; ++step) {
    metrics += step_text(step, step == 77'777 ? 1234.5 : 3 + 1e-6 * step);
  }
  folder.append("metrics.jsonl", metrics);
  const RunReader reader(folder.path());
  const std::string page = runs_page({&reader.data()}, false);
  EXPECT_LT(page.size(), 3U << 20);
  const Json run = Json::parse(data_of(page))["runs"][0];
  EXPECT_EQ(run["per_bin"], 32);
  double highest = 0;
  for (const Json& most : run["curves"]["loss"]["most"])
    highest = std::max(highest, most.get<double>());
  EXPECT_EQ(highest, 1234.5);
  EXPECT_EQ(run["x"]["step"].back(), 100'000);
}

TEST(ReportJson, NamesStayText) {
  const std::string evil = "</script><img src=x onerror=alert(1)>&'<!--DATA-->/*SCRIPT*/";
  const RunFolder folder;
  folder.append("metrics.jsonl", step_text(1, 5, ",\"eval_loss\":1,\"eval_losses\":{\"<b>\":1}"));
  folder.append("events.jsonl", Json{{"event", evil}, {"text", evil}}.dump() + "\n");
  folder.append("config.yaml", "train:\n  steps: \"" + evil + "\"  # " + evil + "\n");
  RunReader reader(folder.path());
  reader.set_name(evil + "\xff");
  const std::string page = runs_page({&reader.data()}, false);
  EXPECT_EQ(tag_mistake(page), "");
  EXPECT_EQ(page.find("<img"), std::string::npos);
  for (const char* fetch : {"http://", "https://", "@import", "url(", "<link", "connect-src '"}) {
    EXPECT_EQ(page.find(fetch), std::string::npos) << fetch;
  }
  EXPECT_EQ(Json::parse(data_of(page))["runs"][0]["marks"]["list"][0]["text"], evil);
  EXPECT_NE(runs_page({&reader.data()}, true).find("connect-src 'self'"), std::string::npos);
}

// Without events.jsonl, skipped steps and saves come from the metrics. A run that is only planned
// has a page, too.
TEST(ReportJson, OldRunsAndNewOnes) {
  const RunFolder old;
  std::string skipped = step_text(2, 4);
  skipped.replace(skipped.find("false"), 5, "true");
  old.append("metrics.jsonl", step_text(1, 5, ",\"checkpoint_ms\":12") + skipped);
  const RunReader reader(old.path());
  std::int64_t left_out = 0;
  const std::vector<Mark> marks = marks_of(reader.data(), left_out);
  ASSERT_EQ(marks.size(), 2U);
  EXPECT_EQ(marks[0].kind, "save");
  EXPECT_EQ(marks[1].kind, "skipped");
  EXPECT_EQ(marks[1].step, 2);
  old.append("events.jsonl", "{\"event\":\"skipped\",\"step\":2,\"text\":\"overflow\"}\n");
  const RunReader again(old.path());
  EXPECT_EQ(marks_of(again.data(), left_out).size(), 2U);  // the same skipped step once

  const RunFolder planned;
  planned.append("config.yaml", "train:\n  steps: 3\n");
  const RunReader fresh(planned.path());
  EXPECT_EQ(Json::parse(runs_json({&fresh.data()}))["runs"][0]["steps"], 0);
  EXPECT_EQ(runs_text({&fresh.data()}), fresh.data().name + ": no steps yet\n");
}

TEST(ReportJson, ManyMarksOfAKindAreThinned) {
  const RunFolder folder;
  std::string events = "{\"event\":\"restart\",\"step\":5000,\"text\":\"r\"}\n";
  for (int i = 0; i < 10'000; ++i) {
    events += "{\"event\":\"warning\",\"step\":" + std::to_string(i) + ",\"text\":\"w\"}\n";
  }
  folder.append("events.jsonl", events);
  const RunReader reader(folder.path());
  std::int64_t left_out = 0;
  const std::vector<Mark> marks = marks_of(reader.data(), left_out);
  EXPECT_EQ(marks.size(), kMostMarks + 1);
  EXPECT_EQ(left_out, 10'000 - static_cast<std::int64_t>(kMostMarks));
  EXPECT_EQ(marks.front().step, 0);
  EXPECT_EQ(marks.back().step, 9999);
}

TEST(ReportJson, SeveralRunsShowWhatDiffers) {
  const RunFolder a, b;
  a.append("config.yaml", "train:\n  steps: 3  # a\n  seed: 1  # default\n");
  b.append("config.yaml", "train:\n  steps: 4  # b\n  seed: 1  # default\n");
  const RunReader first(a.path()), second(b.path());
  const Json config = Json::parse(runs_json({&first.data(), &second.data()}))["config"];
  EXPECT_EQ(config["equal"], 1);
  ASSERT_EQ(config["rows"].size(), 1U);
  EXPECT_EQ(config["rows"][0]["cells"], Json::parse(R"([["3","a"],["4","b"]])"));
  EXPECT_EQ(Json::parse(runs_json({&first.data()}))["config"]["rows"].size(), 2U);
}

}  // namespace
}  // namespace sluice
