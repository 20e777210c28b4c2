#include "runtime/run/report/run_summary.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;

StepRecord step_record(std::int64_t step, double step_ms, double mfu) {
  StepRecord record;
  record.step = step;
  record.loss = 3.5;
  record.tokens = step * 1000;
  record.step_ms = step_ms;
  record.tokens_per_s = 1000 / step_ms * 1000;
  record.mfu = mfu;
  return record;
}

TEST(RunSummary, MeansAreOverTime) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("metrics.jsonl"))
      << "{\"step\":5,\"eval_loss\":3.25}\n{\"step\":11,\"eval_loss\":3.5}\n";
  RunSummary summary(0);
  summary.add(step_record(10, 1000, 0.8));
  StepRecord slow = step_record(11, 3000, 0.4);
  slow.checkpoint_ms = 2000;
  slow.skipped = true;
  summary.add(slow);
  summary.add_evaluation(61);
  summary.add_save(3);
  const std::string text =
      summary.text({.steps = 20, .output_dir = folder.file(""), .checkpoint = "runs/a/step-11"});
  EXPECT_THAT(
      text,
      HasSubstr("summary\n steps       11 of 20, 2 since the start of this process, 1 skipped\n"));
  EXPECT_THAT(text, HasSubstr(" tokens      11.0k\n"));
  EXPECT_THAT(text, HasSubstr(" validation  3.5000 (step 11), best of 2: 3.2500 (step 5)\n"));
  EXPECT_THAT(text, HasSubstr("steps 0:00:04, validation 0:01:01, saves 0:00:05\n"));
  EXPECT_THAT(text, HasSubstr(" speed       500 tok/s, 50 % of measured rate\n"));
  EXPECT_THAT(text, HasSubstr(" checkpoint  runs/a/step-11\n"));
  EXPECT_THAT(text, HasSubstr("metrics.jsonl"));
}

TEST(RunSummary, OfNoStepIsEmpty) { EXPECT_EQ(RunSummary(0).text({}), ""); }

TEST(RunSummary, FilesForPeople) {
  const TemporaryFolder folder;
  for (const char* name : {"config.yaml", "metrics.jsonl", "metrics.jsonl.1", "rank-0.log",
                           "rank-1.log", "rank-2.log", "sluice-run.lock", "rank-1.error.json"}) {
    std::ofstream(folder.file(name)) << "x";
  }
  std::filesystem::create_directories(folder.file("checkpoints"));
  std::filesystem::create_directories(folder.file("checkpoints.1"));
  EXPECT_EQ(files_of_run(folder.file(""), 3),
            "checkpoints/ config.yaml metrics.jsonl rank-0.log (and 2 more rank logs)");
  // The third log is of an earlier start with more ranks.
  EXPECT_EQ(files_of_run(folder.file(""), 2),
            "checkpoints/ config.yaml metrics.jsonl rank-0.log (and 1 more rank log)");
  EXPECT_EQ(files_of_run(folder.file("none"), 1), "");
}

}  // namespace
}  // namespace sluice
