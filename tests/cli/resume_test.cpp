// Saving and resuming as a user has it: processes of the program that are stopped, killed, run out
// of space and started again.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/cli/resume_runs.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

TEST_F(Resume, AfterACrashTheCurveIsThatOfARunWithoutOne) {
  expect_goes_on("", "fp32");
  // By name: two runs that measure on a loaded machine need not choose alike.
  const std::string native = " --set train.matmul=native";
  expect_goes_on(native +
                     " --set checkpoint.async=false --set train.dtype=bf16"
                     " --set train.global_batch=8",
                 "bf16, accumulation");
  // Overflows at the start: the scale has halved, its counters stand somewhere.
  expect_goes_on(native +
                     " --set train.dtype=fp16 --set loss_scale.initial=16777216"
                     " --set loss_scale.window=4 --set loss_scale.hysteresis=1",
                 "fp16");
  expect_goes_on(everything_on("nvme") + " --set model.dropout=0.1", "everything on nvme");
}

// Whatever a measurement would say now.
TEST_F(Resume, GoesOnInWhatItsMatricesWereMultipliedIn) {
  for (const std::string type : {"native", "fp32"}) {
    SCOPED_TRACE(type);
    const std::string half = "--set train.dtype=bf16 ";
    const std::string given = half + "--set train.matmul=" + type;
    ASSERT_EQ(train("whole", given).exit_code, 0);
    ASSERT_EQ(train("run", given + " --set checkpoint.every=3" + kAtOnce,
                    {{"SLUICE_FAILPOINTS", "engine.step@9:rank=1:kill"}})
                  .exit_code,
              5);
    const Finished resumed = train("run", half + "--resume auto");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_NE(resumed.output.find("as before the checkpoint"), std::string::npos) << resumed.output;
    EXPECT_EQ(scratch_.curve("run"), scratch_.curve("whole"));
    fs::remove_all(scratch_.path("run"));
  }
}

TEST_F(Resume, FromWhatIsOnNvmeItselfAndItIsNotLostByMistake) {
  const std::string sets = everything_on("nvme") + " --set offload.image=true";
  ASSERT_EQ(train("whole", sets).exit_code, 0);
  ASSERT_EQ(train("run", sets, {{"SLUICE_FAILPOINTS", "engine.step@8:rank=0:kill"}}).exit_code, 5);
  const auto refuse = [&](const std::string& arguments, const std::string& why) {
    const Finished refused = train("run", sets + arguments);
    EXPECT_EQ(refused.exit_code, 4) << refused.output;
    EXPECT_NE(refused.output.find(why), std::string::npos) << refused.output;
  };
  refuse("", "is part of an image that a training run can go on from");
  refuse(" --set offload.image=false --resume auto", "is part of an image");
  refuse(" --resume auto --set model.hidden=64", "no whole checkpoint exists");
  const Finished resumed = train("run", sets + " --resume auto");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("resumed from the image in offload.nvme_path: going on with step"),
            std::string::npos)
      << resumed.output;
  EXPECT_EQ(scratch_.curve("run"), scratch_.curve("whole"));
  EXPECT_FALSE(fs::exists(scratch_.path("swap/rank-00000.swap")));
}

TEST_F(Resume, FromTheImagesOfATensorOrPipelineParallelMesh) {
  for (const std::string mesh : {"tensor", "pipeline"}) {
    SCOPED_TRACE(mesh);
    const std::string sets = everything_on("nvme") + " --set offload.image=true --set parallel." +
                             mesh + "=2 --set model.tie_embeddings=false --resume auto";
    ASSERT_EQ(train("whole", sets).exit_code, 0);
    ASSERT_EQ(train("run", sets, {{"SLUICE_FAILPOINTS", "engine.step@8:rank=1:kill"}}).exit_code,
              5);
    const Finished resumed = train("run", sets);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_NE(resumed.output.find("resumed from the image"), std::string::npos) << resumed.output;
    EXPECT_EQ(scratch_.curve("run"), scratch_.curve("whole"));
    fs::remove_all(scratch_.path("whole"));
    fs::remove_all(scratch_.path("run"));
  }
}

TEST_F(Resume, FromACheckpointThatWasWrittenAgain) {
  crash_with_two_checkpoints();
  const Finished again =
      run_program(scratch_, "checkpoint convert run/checkpoints -o small --files 3");
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_NE(again.output.find("small/step-00000006: step 6, 3 files"), std::string::npos)
      << again.output;
  const Finished resumed = train("run", "--resume small --set checkpoint.dir=small");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(scratch_.curve("run"), whole_curve()) << resumed.output;
  const Finished onto = run_program(scratch_, "checkpoint convert run/checkpoints -o small");
  EXPECT_EQ(onto.exit_code, 2) << onto.output;
  EXPECT_NE(onto.output.find("already holds checkpoints"), std::string::npos) << onto.output;
}

TEST_F(Resume, TheLauncherStartsACrashedRunAgain) {
  const std::string restarts =
      std::string("--set checkpoint.every=3 --set launch.max_restarts=1") + kAtOnce;
  const Finished run = train("run", restarts, {{"SLUICE_FAILPOINTS", "engine.step@9:rank=1:kill"}});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("restart 1 of 1"), std::string::npos) << run.output;
  EXPECT_EQ(scratch_.curve("run"), whole_curve());
  // Twice in a row is once too often, and what would happen again is not tried.
  const Finished again =
      train("again", restarts, {{"SLUICE_FAILPOINTS", "engine.step@2:rank=1:kill"}});
  EXPECT_EQ(again.exit_code, 5) << again.output;
  const Finished diverged =
      train("diverged", restarts, {{"SLUICE_FAILPOINTS", "engine.forward.4.2:rank=1:nan"}});
  EXPECT_EQ(diverged.exit_code, 5) << diverged.output;
  EXPECT_EQ(diverged.output.find("restart 1"), std::string::npos) << diverged.output;
}

TEST_F(Resume, ARestartBeforeTheFirstSaveBeginsWhereTheRunDid) {
  ASSERT_EQ(train("run", "--set checkpoint.every=5").exit_code, 0);
  const Finished run = train("other",
                             "--resume run/checkpoints --set train.steps=14"
                             " --set checkpoint.every=9 --set launch.max_restarts=1",
                             {{"SLUICE_FAILPOINTS", "engine.step@2:rank=1:kill"}});
  EXPECT_EQ(run.exit_code, 5) << run.output;
  EXPECT_NE(run.output.find("restart 1 of 1 (launch.max_restarts), as at first"), std::string::npos)
      << run.output;
  EXPECT_EQ(run.output.find("starting anew"), std::string::npos) << run.output;
  const std::string resumed = "going on with step 11";
  const std::size_t first = run.output.find(resumed);
  ASSERT_NE(first, std::string::npos) << run.output;
  EXPECT_NE(run.output.find(resumed, first + 1), std::string::npos) << run.output;
}

TEST_F(Resume, ACheckpointThatCannotBeReadIsPassedOverAndNoneIsLost) {
  ASSERT_NO_FATAL_FAILURE(crash_with_two_checkpoints());
  // Rank 1 alone cannot read 6; the run goes back to 3 and is killed after it has saved 6 again.
  const std::string one =
      std::string("--resume auto --set checkpoint.every=3") + " --set checkpoint.keep=1" + kAtOnce;
  const Finished resumed =
      train("run", one,
            {{"SLUICE_FAILPOINTS", "checkpoint.read@2:rank=1:error;engine.step@5:rank=0:kill"}});
  EXPECT_EQ(resumed.exit_code, 5) << resumed.output;
  for (const char* said : {"CANNOT BE READ", "going on with step 4"}) {
    EXPECT_NE(resumed.output.find(said), std::string::npos) << said << "\n" << resumed.output;
  }
  ASSERT_EQ(complete("run"), std::vector<std::string>{"step-00000006.1"});
  const Finished last = train("run", one);
  EXPECT_EQ(last.exit_code, 0) << last.output;
  EXPECT_NE(last.output.find("going on with step 7"), std::string::npos) << last.output;
  EXPECT_EQ(scratch_.curve("run"), whole_curve());
}

TEST_F(Resume, OnMoreRanksTheSamplesAndTheStatesAreTheSame) {
  const std::string batch = " --set train.global_batch=12";
  ASSERT_EQ(train("whole", batch).exit_code, 0);
  ASSERT_EQ(train("run", batch + kAtOnce + " --set checkpoint.every=5",
                  {{"SLUICE_FAILPOINTS", "engine.step@9:rank=1:kill"}})
                .exit_code,
            5);
  const Finished resumed = train("run", batch + " --nproc 3 --set zero.stage=1 --resume auto");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("data-parallel ranks: 2 -> 3"), std::string::npos);
  const auto whole = scratch_.metrics("whole");
  const auto run = scratch_.metrics("run");
  ASSERT_EQ(run.size(), whole.size());
  for (std::size_t i = 0; i < run.size(); ++i) {
    EXPECT_NEAR(run[i]["loss"].get<double>() / whole[i]["loss"].get<double>(), 1, 1e-5) << i;
  }
}

TEST_F(Resume, WhatChangesTheNumbersIsNamed) {
  ASSERT_EQ(train("run", std::string("--set checkpoint.every=4") + kAtOnce,
                  {{"SLUICE_FAILPOINTS", "engine.step@6:rank=0:kill"}})
                .exit_code,
            5);
  scratch_.write("text.txt", scratch_.read("text.txt") + " and some more text at the end of it");
  const Finished resumed = train(
      "run",
      "--resume auto --set optimizer.lr=1e-3 --set train.global_batch=8 --set train.clip=0.5");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  for (const char* said :
       {"optimizer.lr: 0.003 -> 0.001", "train.clip: 1 -> 0.5", "data: other tokens",
        "train.global_batch: 4 -> 8", "16 samples are left out"}) {
    EXPECT_NE(resumed.output.find(said), std::string::npos) << said << "\n" << resumed.output;
  }
  const std::vector<nlohmann::json> steps = scratch_.metrics("run");
  EXPECT_EQ(steps.back()["tokens"].get<int>(),
            (4 * 4 + 6 * 8) * steps.front()["tokens"].get<int>() / 4)
      << "4 steps of 4 samples and 6 of 8";
  const Finished wider = train("run", "--resume auto --set model.hidden=64 --set train.steps=20");
  EXPECT_EQ(wider.exit_code, 2) << wider.output;
  EXPECT_NE(wider.output.find("is of another model"), std::string::npos) << wider.output;
}

TEST_F(Resume, IsRefusedWhereItWouldMeanSomethingElse) {
  const Finished missing = train("run", "--resume nowhere");
  EXPECT_EQ(missing.exit_code, 4) << missing.output;
  EXPECT_NE(missing.output.find("nowhere"), std::string::npos) << missing.output;
  EXPECT_FALSE(fs::exists(scratch_.path("run")));

  const Finished first = train("run", "--resume auto");
  EXPECT_EQ(first.exit_code, 0) << first.output;
  EXPECT_NE(first.output.find("starting anew"), std::string::npos) << first.output;
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000010"});

  const std::string before = scratch_.curve("run");
  for (const std::string from : {"auto", "run/checkpoints", "run/checkpoints/step-00000010"}) {
    const Finished again = train("run", "--resume " + from);
    EXPECT_EQ(again.exit_code, 0) << again.output;
    EXPECT_NE(again.output.find("the run is finished"), std::string::npos) << again.output;
    EXPECT_EQ(scratch_.curve("run"), before);
  }
  const Finished anew = train("run", "--set checkpoint.every=5");
  EXPECT_EQ(anew.exit_code, 4) << anew.output;
  EXPECT_NE(anew.output.find("of an earlier run"), std::string::npos) << anew.output;
  EXPECT_EQ(scratch_.curve("run"), before);
  EXPECT_EQ(train("other", "--resume run/checkpoints --set train.steps=12").exit_code, 0);
  EXPECT_EQ(scratch_.metrics("other").size(), 2U);
}

// eval of the run's config.yaml, printed as its next command, must go on working.
TEST_F(Resume, ARefusedOneLeavesTheFilesOfTheRunAsTheyAre) {
  const std::string vocab = " --set model.vocab=300";
  ASSERT_EQ(train("run", vocab).exit_code, 0);
  const Finished other = run_program(scratch_, "tokenizer train text.txt --vocab-size 270 -o own");
  ASSERT_EQ(other.exit_code, 0) << other.output;
  const std::string config = scratch_.read("run/config.yaml");
  const std::string plan = scratch_.read("run/plan.json");
  const std::string more = " --set train.steps=14" + vocab;
  const auto refuse = [&](const Finished& refused, const std::string& why) {
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_NE(refused.output.find(why), std::string::npos) << refused.output;
    EXPECT_EQ(scratch_.read("run/config.yaml"), config);
    EXPECT_EQ(scratch_.read("run/plan.json"), plan);
  };
  refuse(train("run", "--resume auto --set optimizer.type=lion" + more),
         "holds the moments of adamw; go on with adamw");
  refuse(train("run", "--resume auto --set data.tokenizer=own" + more), "was trained with");
  refuse(train("run", "--resume auto --set model.hidden=64" + more), "is of another model");
  refuse(train("run", "--resume run --set model.heads=1" + more), "model.heads is 1");
  refuse(train("run", "--resume auto --set optimizer.type=lion" + more, environment_of_rank_0(1)),
         "holds the moments of adamw");
}

// The launcher alone: a rank would add its start to events.jsonl.
TEST_F(Resume, AFinishedRunIsToldSoBeforeAnEngineIsMade) {
  ASSERT_EQ(train("run").exit_code, 0);
  const std::string config = scratch_.read("run/config.yaml");
  const std::string events = scratch_.read("run/events.jsonl");
  for (const std::string from : {"auto", "run"}) {
    const Finished again = train("run", "--set optimizer.lr=0.5 --resume " + from);
    EXPECT_EQ(again.exit_code, 0) << again.output;
    EXPECT_NE(again.output.find("step-00000010 is of step 10 and train.steps is 10: the run is "
                                "finished, there is nothing to do"),
              std::string::npos)
        << again.output;
    EXPECT_EQ(scratch_.read("run/config.yaml"), config);
    EXPECT_EQ(scratch_.read("run/events.jsonl"), events);
  }
}

TEST_F(Resume, AFolderThatCannotBeSavedToIsRefusedAtTheStart) {
  scratch_.write("file", "x");
  const Finished run = train("run", "--set checkpoint.dir=file/checkpoints");
  EXPECT_EQ(run.exit_code, 4) << run.output;
  EXPECT_NE(run.output.find("file: Not a directory; set checkpoint.dir to a folder"),
            std::string::npos)
      << run.output;
  EXPECT_FALSE(fs::exists(scratch_.path("run")));
}

// Damaged ones may be repaired, those of a newer version read elsewhere: a start anew would remove
// them.
TEST_F(Resume, WhatCannotBeReadIsNotReplacedEither) {
  ASSERT_EQ(train("run", "--set checkpoint.every=5").exit_code, 0);
  for (const std::string& name : complete("run")) {
    fs::remove(scratch_.path("run/checkpoints/" + name + "/rank-00001.safetensors"));
  }
  const Finished anew = train("run", "--set checkpoint.every=5");
  EXPECT_EQ(anew.exit_code, 4) << anew.output;
  EXPECT_NE(anew.output.find("holds step-00000010 of an earlier run"), std::string::npos)
      << anew.output;
  EXPECT_TRUE(fs::exists(scratch_.path("run/checkpoints/step-00000010/rank-00000.safetensors")));
}

TEST_F(Resume, KeepsTheNewest) {
  ASSERT_EQ(train("run", "--set checkpoint.every=2 --set checkpoint.keep=3").exit_code, 0);
  EXPECT_EQ(complete("run"),
            (std::vector<std::string>{"step-00000006", "step-00000008", "step-00000010"}));
}

TEST_F(Resume, ADamagedCheckpointIsPassedOverLoudly) {
  ASSERT_NO_FATAL_FAILURE(crash_with_two_checkpoints());
  const std::string file = scratch_.path("run/checkpoints/step-00000006/rank-00001.safetensors");
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(fs::file_size(file) / 2))
      .put('\x55')
      .put('\x54');
  const Finished resumed = train("run", "--resume auto --set checkpoint.every=3");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  for (const char* said : {"IS DAMAGED", "rank-00001.safetensors", "going on with step 4"}) {
    EXPECT_NE(resumed.output.find(said), std::string::npos) << said << "\n" << resumed.output;
  }
  EXPECT_EQ(scratch_.curve("run"), whole_curve());
  EXPECT_EQ(train("run", "--resume auto").exit_code, 0);
}

TEST_F(Resume, AFullDiskIsReportedAndTheRunGoesOn) {
  for (const std::string mode : {"true", "false"}) {
    const Finished run = train("run", "--set checkpoint.every=4 --set checkpoint.async=" + mode,
                               {{"SLUICE_FAILPOINTS", "checkpoint.write.enospc@1:rank=1:error"}});
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_NE(run.output.find("checkpoint of step 4 was not saved, the run goes on: rank 1: "),
              std::string::npos)
        << run.output;
    EXPECT_EQ(scratch_.curve("run"), whole_curve());
    EXPECT_EQ(complete("run"), (std::vector<std::string>{"step-00000008", "step-00000010"}));
    fs::remove_all(scratch_.path("run"));
  }
}

// The last lines do not name a checkpoint whose save failed.
TEST_F(Resume, ASaveThatFailedIsNotNamedAtTheEnd) {
  const std::string one = "--set checkpoint.every=8 --set checkpoint.at_end=false";
  const Finished failed =
      train("run", one, {{"SLUICE_FAILPOINTS", "checkpoint.write.enospc@1:rank=1:error"}});
  EXPECT_EQ(failed.exit_code, 0) << failed.output;
  const auto names = [](const Finished& run) {
    const std::vector<std::string> lines = run.lines();
    return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.find("checkpoint of step") == std::string::npos &&
             line.find("step-00000008") != std::string::npos;
    });
  };
  EXPECT_FALSE(names(failed)) << failed.output;
  EXPECT_EQ(complete("run"), std::vector<std::string>());
  EXPECT_TRUE(names(train("other", one)));
}

// SIGKILL at the n-th call into the file system of a rank, wherever that is: whatever was complete
// is found, and the run goes on with the bits of one that was never killed.
class Killed : public Resume, public ::testing::WithParamInterface<const char*> {
 protected:
  // Calls `first`, first + stride, ... of a rank, until it makes none of that number.
  void run(int rank, int first, int stride) {
    const std::string every = std::string("--set checkpoint.every=2 --set checkpoint.keep=1 ") +
                              "--set checkpoint.async=" + GetParam() + " ";
    for (int call = first;; call += stride) {
      SCOPED_TRACE("killed at call " + std::to_string(call) + " of rank " + std::to_string(rank));
      const Finished killed =
          train("run", every,
                {{"SLUICE_FAILPOINTS", "checkpoint.call@" + std::to_string(call) +
                                           ":rank=" + std::to_string(rank) + ":kill"}});
      bool purged = true;
      if (killed.exit_code != 0) {
        const Finished resumed = train("run", every + "--resume auto");
        ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
        // Killed after the last commit: there is nothing to train, so nothing is saved or purged.
        purged = resumed.output.find("the run is finished") == std::string::npos;
      }
      ASSERT_EQ(scratch_.curve("run"), whole_curve()) << killed.output;
      ASSERT_FALSE(complete("run").empty());
      ASSERT_EQ(complete("run").back(), "step-00000010");
      if (purged) {
        ASSERT_EQ(files_in(scratch_, "run/checkpoints").size(), 2U) << "latest, and the last";
      }
      fs::remove_all(scratch_.path("run"));
      if (killed.exit_code == 0) return;  // no call had that number
    }
  }
};

TEST_P(Killed, AtSampledCallsIntoTheFileSystem) {
  const bool behind = GetParam() == std::string("true");
  run(0, behind ? 9 : 21, 73);  // commits and purges as well
  run(1, behind ? 7 : 3, 43);
}

TEST_P(Killed, AtEveryCallIntoTheFileSystem) {
  if (!slow_tests()) {
    GTEST_SKIP() << "every call runs with SLUICE_SLOW_TESTS=1";
  }
  run(0, 1, 1);
  run(1, 1, 1);
}

INSTANTIATE_TEST_SUITE_P(Async, Killed, ::testing::Values("true", "false"), [](const auto& mode) {
  return std::string(mode.param) == "true" ? "Behind" : "AtOnce";
});

}  // namespace
}  // namespace sluice::testing
