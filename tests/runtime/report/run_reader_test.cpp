#include "runtime/report/run_reader.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "tests/runtime/report/run_folder.hpp"

namespace sluice {
namespace {

using testing::RunFolder;
using testing::step_text;

std::string losses_of(const RunData& data) {
  std::string text;
  for (std::size_t i = 0; i < data.steps.size(); ++i) {
    text += std::to_string(data.steps.step[i]) + ":" +
            std::to_string(std::lround(data.steps.of(Channel::kLoss)[i])) + " ";
  }
  return text;
}

TEST(RunReader, EveryValueOfAStep) {
  const RunFolder folder;
  folder.append("metrics.jsonl",
                step_text(1, 5, ",\"eval_loss\":4.5,\"eval_losses\":{\"web\":4,\"loss\":7}") +
                    step_text(2, 4, ",\"checkpoint_ms\":30,\"mfu\":null"));
  const RunReader reader(folder.path());
  const StepColumns& steps = reader.data().steps;
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps.tokens[1], 200);
  EXPECT_DOUBLE_EQ(steps.seconds[1], 0.5);
  EXPECT_EQ(steps.of(Channel::kForward)[0], 12.5F);
  EXPECT_EQ(steps.of(Channel::kComm)[0], 3);
  EXPECT_EQ(steps.of(Channel::kDevicePeak)[0], 4096);
  EXPECT_EQ(steps.of(Channel::kLoss)[0], 5);  // not that of the set which is called "loss"
  EXPECT_TRUE(std::isnan(steps.of(Channel::kMfu)[1]));
  EXPECT_TRUE(std::isnan(steps.of(Channel::kHostPeak)[0]));
  ASSERT_EQ(steps.evaluations.size(), 1U);
  EXPECT_EQ(steps.evaluations[0].loss, 4.5);
  EXPECT_EQ(steps.evaluations[0].sets[0].first, "web");
  ASSERT_EQ(steps.stalls.size(), 1U);
  EXPECT_EQ(steps.stalls[0].first, 2);
}

// The run writes the second half of a line later.
TEST(RunReader, APartOfALineWaits) {
  const RunFolder folder;
  const std::string second = step_text(2, 4);
  folder.append("metrics.jsonl", step_text(1, 5) + second.substr(0, 30));
  RunReader reader(folder.path());
  EXPECT_EQ(losses_of(reader.data()), "1:5 ");
  EXPECT_EQ(reader.data().damaged(), 0);
  EXPECT_FALSE(reader.refresh());
  folder.append("metrics.jsonl", second.substr(30));
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(losses_of(reader.data()), "1:5 2:4 ");
  EXPECT_FALSE(reader.refresh());
}

// A resumed run replaces the file; one of another program may repeat steps in it.
TEST(RunReader, AResumedRunIsOneCurve) {
  const RunFolder folder;
  folder.append("metrics.jsonl", step_text(1, 9) + step_text(2, 8) + step_text(3, 7));
  RunReader reader(folder.path());
  folder.replace("metrics.jsonl", step_text(1, 9) + step_text(2, 6));
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(losses_of(reader.data()), "1:9 2:6 ");
  folder.append("metrics.jsonl", step_text(3, 5) + step_text(4, 4, ",\"eval_loss\":1") +
                                     step_text(2, 3) + step_text(3, 2));
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(losses_of(reader.data()), "1:9 2:3 3:2 ");
  EXPECT_TRUE(reader.data().steps.evaluations.empty());
  EXPECT_DOUBLE_EQ(reader.data().steps.seconds.back(), 0.75);
}

TEST(RunReader, DamagedLinesAreNamedAndPassedOver) {
  const RunFolder folder;
  folder.append("metrics.jsonl", step_text(1, 5) + "garbage\n" + "{\"step\":0}\n[1]\n\n" +
                                     std::string(2 * LineFollower::kMostLine, 'x') + "\n" +
                                     step_text(2, 4));
  folder.append("events.jsonl", "{\"event\":\"start\",\"text\":\"x\"}\n{\"text\":1}\n");
  folder.append("plan.json", "{}");
  folder.append("trace.json", "no trace");
  const RunReader reader(folder.path());
  EXPECT_EQ(losses_of(reader.data()), "1:5 2:4 ");
  ASSERT_EQ(reader.data().damaged(), 8);
  const std::string metrics = folder.file("metrics.jsonl");
  EXPECT_EQ(reader.data().damage[0].text(),
            metrics + ":2: no JSON object with a step of 1 or more; the line was left out");
  EXPECT_EQ(reader.data().damage[3].line, 5);
  EXPECT_EQ(reader.data().damage[4].text(),
            metrics + ":6: longer than 1 MiB; the line was left out");
  EXPECT_EQ(reader.data().damage[5].text().find(folder.file("events.jsonl") + ":2: "), 0U);
  EXPECT_EQ(reader.data().events.size(), 1U);
  EXPECT_FALSE(reader.data().plan.has_value());
}

// The list of damage is bounded, its number is not; a replaced file begins anew.
TEST(RunReader, ManyDamagedLines) {
  const RunFolder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "?\n";
  folder.append("metrics.jsonl", text);
  RunReader reader(folder.path());
  EXPECT_EQ(reader.data().damaged(), 1000);
  EXPECT_EQ(reader.data().damage.size(), RunData::kMostDamage);
  folder.replace("metrics.jsonl", step_text(1, 5));
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.data().damaged(), 0);
  EXPECT_TRUE(reader.data().damage.empty());
}

TEST(RunReader, ATraceThatWasHalfWrittenIsNoDamageLater) {
  const RunFolder folder;
  folder.append("metrics.jsonl", step_text(1, 5));
  for (const char* name : {"trace.json", "plan_trace.json"}) {
    folder.append(name, "{\"traceEv");
    RunReader reader(folder.path());
    EXPECT_EQ(reader.data().damaged(), 1) << name;
    std::filesystem::remove(folder.file(name));
    EXPECT_TRUE(reader.refresh());
    EXPECT_EQ(reader.data().damaged(), 0) << name;
  }
}

TEST(RunReader, FilesThatComeLater) {
  const RunFolder folder;
  folder.append("config.yaml", "train:\n  steps: 3  # a.yaml:1\n");
  RunReader reader(folder.path());
  EXPECT_EQ(reader.data().steps.size(), 0U);
  EXPECT_EQ(reader.data().config.size(), 1U);
  folder.append("metrics.jsonl", step_text(1, 5));
  folder.append("plan.json", R"({"tiers":{"device":{"peak":5,"budget":9,"by_tag":{"a":5}}}})");
  EXPECT_TRUE(reader.refresh());
  ASSERT_TRUE(reader.data().plan.has_value());
  EXPECT_EQ(reader.data().plan->tiers[0].budget, 9);
  EXPECT_FALSE(reader.refresh());
}

TEST(RunReader, RefusesWhatIsNoRun) {
  const RunFolder folder;
  EXPECT_THROW(RunReader{folder.path()}, IoError);
  EXPECT_THROW((void)open_runs({folder.path() + "/none"}), IoError);
  folder.append("metrics.jsonl", "");
  EXPECT_NO_THROW((void)open_runs({folder.file("metrics.jsonl")}));
  folder.append("other.txt", "");
  EXPECT_THROW((void)open_runs({folder.file("other.txt")}), IoError);
}

TEST(RunReader, NamesAFolderInAFilesPlace) {
  for (const char* name : {"config.yaml", "plan.json", "metrics.jsonl"}) {
    const RunFolder folder;
    folder.append("events.jsonl", "");
    std::filesystem::create_directories(folder.file(name));
    try {
      const RunReader reader(folder.path());
      ADD_FAILURE() << name;
    } catch (const IoError& error) {
      EXPECT_EQ(error.path(), folder.file(name));
    }
  }
}

TEST(RunReader, NamesDiffer) {
  const RunFolder folder;
  for (const char* name : {"a/run", "b/run"}) {
    std::filesystem::create_directories(folder.file(name));
    std::ofstream(folder.file(name) + "/metrics.jsonl") << "";
  }
  std::vector<RunReader> runs = open_runs({folder.file("a/run")});
  EXPECT_EQ(runs[0].data().name, "run");
  runs = open_runs({folder.file("a/run/"), folder.file("b/./run")});
  EXPECT_EQ(runs[0].data().name, "a/run");
  EXPECT_EQ(runs[1].data().name, "b/run");
  runs = open_runs({folder.file("a/run"), folder.file("a/run")});  // cannot differ
  EXPECT_EQ(runs.size(), 2U);
}

}  // namespace
}  // namespace sluice
