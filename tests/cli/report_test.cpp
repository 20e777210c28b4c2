// `sluice report` on real runs, and the events that runs record for it.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/resume_runs.hpp"
#include "tests/page/page_check.hpp"

namespace sluice::testing {
namespace {

using Json = nlohmann::json;

class Report : public Resume {
 protected:
  [[nodiscard]] std::vector<Json> events(const std::string& run) const {
    std::vector<Json> all;
    std::istringstream in(scratch_.read(run + "/events.jsonl"));
    for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
    return all;
  }
  [[nodiscard]] std::string kinds(const std::string& run) const {
    std::string text;
    for (const Json& event : events(run)) {
      const std::string kind = event["event"];
      if (kind != "warning" && kind != "plan_error") text += kind + " ";  // of the machine
    }
    return text;
  }
  [[nodiscard]] Json event(const std::string& run, const std::string& kind) const {
    for (const Json& event : events(run)) {
      if (event["event"] == kind) return event;
    }
    ADD_FAILURE() << "no event " << kind;
    return {};
  }
  Finished report(const std::string& arguments) {
    return run_program(scratch_, "report " + arguments);
  }
  [[nodiscard]] Json page(const std::string& name) const {
    return Json::parse(data_of(scratch_.read(name)), nullptr, false);
  }
};

// A rank is killed after two saves; the launcher starts the run again.
TEST_F(Report, ARunWithSavesAndARestart) {
  const Finished trained =
      train("run",
            std::string("--set checkpoint.every=3 --set launch.max_restarts=1 --set "
                        "output.trace=true --set train.eval_every=5") +
                kAtOnce,
            {{"SLUICE_FAILPOINTS", "engine.step@8:rank=1:kill"}});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string all = kinds("run");
  EXPECT_EQ(all.find("start save_begun save evaluation save_begun save restart start resume "), 0U)
      << all;
  EXPECT_TRUE(all.ends_with("end ")) << all;
  const Json save = event("run", "save");
  EXPECT_EQ(save["step"], 3);
  EXPECT_GT(save["bytes"].get<std::int64_t>(), 1000);
  EXPECT_GE(save["seconds"].get<double>(), 0);
  const Json start = event("run", "start");
  EXPECT_EQ(start["world"], 2);
  EXPECT_NE(start["text"].get<std::string>().find("train tiny.yaml"), std::string::npos);
  const std::string cause = event("run", "restart")["text"];
  EXPECT_NE(cause.find("restart 1 of 1"), std::string::npos) << cause;
  EXPECT_NE(cause.find("rank 1 on "), std::string::npos) << cause;
  EXPECT_EQ(event("run", "resume")["step"], 6);

  const Finished made = report("run");
  ASSERT_EQ(made.exit_code, 0) << made.output;
  EXPECT_NE(made.output.find("run/report.html"), std::string::npos) << made.output;
  EXPECT_EQ(tag_mistake(scratch_.read("run/report.html")), "");
  const Json run = page("run/report.html")["runs"][0];
  EXPECT_EQ(run["steps"].get<std::size_t>(), scratch_.metrics("run").size());
  EXPECT_EQ(run["x"]["step"][0], 1);
  EXPECT_EQ(run["curves"]["loss"]["mean"][0].get<float>(),
            scratch_.metrics("run")[0]["loss"].get<float>());
  EXPECT_GT(run["plan"]["tiers"][0]["peak"].get<double>(), 0);
  EXPECT_GT(run["timeline"]["bars"]["row"].size(), 5U);
}

TEST_F(Report, TwoRunsAndWhatDiffers) {
  ASSERT_EQ(train("a", "--set optimizer.lr=1e-3 --set train.seed=7").exit_code, 0);
  ASSERT_EQ(train("b").exit_code, 0);
  EXPECT_EQ(event("a", "end")["text"], "finished: all 10 steps");
  const Finished made = report("a b -o both.html");
  ASSERT_EQ(made.exit_code, 0) << made.output;
  const Json data = page("both.html");
  ASSERT_EQ(data["runs"].size(), 2U);
  std::map<std::string, Json> differs;
  for (const Json& row : data["config"]["rows"]) differs[row["key"]] = row["cells"];
  EXPECT_TRUE(differs.contains("train.seed"));
  EXPECT_TRUE(differs.contains("output.dir"));
  EXPECT_FALSE(differs.contains("model.hidden"));  // set, and equal
  EXPECT_EQ(differs["optimizer.lr"][0][0], "0.001");
  EXPECT_EQ(differs["optimizer.lr"][0][1], "--set optimizer.lr=1e-3");
  EXPECT_EQ(data["runs"][0]["has_events"], true);
}

// A folder in the place of events.jsonl: the run goes on, says so once, and has a report.
TEST_F(Report, ARunOutlivesAFileThatCannotBeWritten) {
  std::filesystem::create_directories(scratch_.path("run/events.jsonl/x"));
  std::filesystem::create_directories(scratch_.path("run/events.jsonl.1/x"));
  std::filesystem::create_directories(scratch_.path("run/plan_trace.json/x"));
  const Finished trained = train("run");
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_NE(trained.output.find("events.jsonl"), std::string::npos) << trained.output;
  std::filesystem::remove_all(scratch_.path("run/events.jsonl"));
  std::filesystem::remove_all(scratch_.path("run/plan_trace.json"));
  EXPECT_EQ(report("run").exit_code, 0);
  EXPECT_EQ(page("run/report.html")["runs"][0]["steps"], 10);
}

TEST_F(Report, BadArguments) {
  const auto expect = [&](const std::string& arguments, int code, const std::string& said) {
    const Finished done = report(arguments);
    EXPECT_EQ(done.exit_code, code) << arguments << "\n" << done.output;
    EXPECT_NE(done.output.find(said), std::string::npos) << arguments << "\n" << done.output;
  };
  std::filesystem::create_directories(scratch_.path("empty"));
  scratch_.write("empty/notes.txt", "");
  expect("", 2, "runs");
  expect("none", 4, "cannot report on none: there is no such folder");
  expect("empty", 4, "give the output.dir of a run");
  expect("tiny.yaml", 4, "it is no folder of a run");
  std::filesystem::create_directories(scratch_.path("run"));
  scratch_.write("run/metrics.jsonl", "{\"step\":1,\"loss\":2}\nbroken\n{\"step\":2,\"lo");
  expect("run", 0, "run/metrics.jsonl:2: no JSON object");
  expect("run -o none/report.html", 4, "none/report.html");
  expect("run -o run/metrics.jsonl", 2, "metrics.jsonl: the file is there and is no HTML page");
  expect("run -o tiny.yaml", 2, "give -o the name of a new file");
  EXPECT_TRUE(scratch_.read("run/metrics.jsonl").starts_with("{\"step\":1"));
  scratch_.write("run/events.jsonl", "");
  expect("run -o run/events.jsonl", 2, "no HTML page");
  scratch_.write("empty/new.html", "");
  expect("run -o empty/new.html", 0, "");
  expect("run -o empty/new.html", 0, "");
  expect("run --port 80", 2, "--watch");
  expect("run --watch --port 70000", 2, "65535");
  expect("run --watch -o x.html", 2, "-o");
}

// One page and nothing else on standard output.
TEST_F(Report, AMinusIsStandardOutput) {
  std::filesystem::create_directories(scratch_.path("run"));
  scratch_.write("run/metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  const Finished made = report("run -o - 2>said | cat");
  EXPECT_EQ(tag_mistake(made.output), "");
  EXPECT_EQ(Json::parse(data_of(made.output))["runs"].size(), 1U);
  EXPECT_NE(scratch_.read("said").find("run"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("-")));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("run/report.html")));
}

}  // namespace
}  // namespace sluice::testing
