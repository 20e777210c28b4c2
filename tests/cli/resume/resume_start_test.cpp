// What a run takes over when it resumes, and what it says where it starts anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "tests/cli/resume_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The data are tokens, so the run has no tokenizer but the one of the checkpoint that it went on
// from. Its first process is killed before a save.
TEST_F(Resume, AnImageKeepsTheTokenizerOfTheCheckpointBeforeIt) {
  std::string documents;
  for (int i = 0; i < 200; ++i) documents += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  scratch_.write("documents.jsonl", documents);
  ASSERT_EQ(run_program(scratch_, "data prepare documents.jsonl -o d --append-eod").exit_code, 0);
  ASSERT_EQ(train("base").exit_code, 0);
  const std::string sets = everything_on("nvme") +
                           " --set offload.image=true --set data.text=[] --set model.vocab=257"
                           " --set data.train=[d_text_document] --set train.steps=14";
  const Finished killed =
      train("run", sets + " --resume base", {{"SLUICE_FAILPOINTS", "engine.step@3:rank=0:kill"}});
  ASSERT_EQ(killed.exit_code, 5) << killed.output;
  ASSERT_TRUE(complete("run").empty());
  const Finished resumed = train("run", sets + " --resume auto");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  ASSERT_THAT(resumed.output, HasSubstr("resumed from the image"));
  const auto tokenizer_of = [&](const std::string& run) {
    return open_checkpoint(local_file_system(), scratch_.path(run)).manifest().run.tokenizer;
  };
  EXPECT_TRUE(tokenizer_of("base").known());
  EXPECT_EQ(tokenizer_of("run").fingerprint, tokenizer_of("base").fingerprint);
}

TEST_F(Resume, AStartAnewNamesTheNewestCheckpointThatWasMovedAside) {
  for (const std::string steps : {"2", "3"}) {
    ASSERT_EQ(train("run", "--set train.steps=" + steps).exit_code, 0);
  }
  ASSERT_EQ(train("run", "", {{"SLUICE_FAILPOINTS", "engine.step@2:rank=0:kill"}}).exit_code, 5);
  const Finished anew = train("run", "--resume auto --set checkpoint.at_end=false");
  EXPECT_EQ(anew.exit_code, 0) << anew.output;
  EXPECT_THAT(anew.output,
              HasSubstr("no checkpoint in run/checkpoints, starting anew; "
                        "run/checkpoints.2/step-00000003 of an earlier run was moved aside: to go "
                        "on from it, stop this run and give --resume "
                        "run/checkpoints.2/step-00000003"));
  const Finished other = train("other", "--resume auto --set checkpoint.at_end=false");
  EXPECT_THAT(other.output, HasSubstr("starting anew"));
  EXPECT_THAT(other.output, Not(HasSubstr("moved aside")));
}

TEST_F(Resume, AStallBeforeTheFirstStepIsNoResume) {
  const Finished run = train("run", "--set launch.timeout=4s",
                             {{"SLUICE_FAILPOINTS", "engine.step@1:rank=0:delay=30000"}});
  EXPECT_EQ(run.exit_code, 5) << run.output;
  EXPECT_THAT(run.output, HasSubstr("in preparing step 1"));
  EXPECT_THAT(run.output, Not(HasSubstr("in resuming")));
}

}  // namespace
}  // namespace sluice::testing
