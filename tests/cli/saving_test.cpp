// When a run saves, and what is said of it: at its end, when it is asked to, when it is stopped.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>
#include <utility>

#include "tests/cli/rank_processes.hpp"
#include "tests/cli/resume_runs.hpp"
#include "tests/cli/tier_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

// Nobody asked for it. What the run says to do next works, and takes the run's folder.
TEST_F(Resume, ARunIsSavedAtItsEndAndSaysWhatIsNext) {
  const Finished run = train("run");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000010"});
  const std::string command = "  sluice ";
  std::string told;
  for (const std::string& line : run.lines()) {
    if (!line.starts_with(command)) continue;
    std::string arguments = line.substr(command.size());
    told += arguments.substr(0, arguments.find(' ')) + " ";
    if (arguments.starts_with("generate")) arguments += " --max-tokens 4";
    const Finished next = run_program(scratch_, arguments);
    EXPECT_EQ(next.exit_code, 0) << arguments << "\n" << next.output;
  }
  EXPECT_EQ(told, "generate eval report checkpoint ") << run.output;
  EXPECT_TRUE(fs::exists(scratch_.path("run/huggingface/config.json")));
  for (const char* more : {"ls run", "verify run", "convert run -o small"}) {
    const Finished done = run_program(scratch_, std::string("checkpoint ") + more);
    EXPECT_EQ(done.exit_code, 0) << done.output;
    EXPECT_NE(done.output.find("step-00000010"), std::string::npos) << done.output;
  }
  const Finished on = train("on", "--resume run --set train.steps=12");
  EXPECT_EQ(on.exit_code, 0) << on.output;
  EXPECT_NE(on.output.find("going on with step 11"), std::string::npos) << on.output;
}

// A save after the last step fails: the run ends there, so no line says that the run goes on.
TEST_F(Resume, AFailedLastSaveDoesNotSayThatTheRunGoesOn) {
  const Finished run =
      train("run", "", {{"SLUICE_FAILPOINTS", "checkpoint.write.enospc@1:rank=1:error"}});
  EXPECT_EQ(run.exit_code, 4) << run.output;
  EXPECT_NE(run.output.find("checkpoint of step 10 was not saved: rank 1: "), std::string::npos)
      << run.output;
  EXPECT_EQ(run.output.find("the run goes on"), std::string::npos) << run.output;
  EXPECT_NE(
      run.output.find("keep fewer checkpoints (checkpoint.keep: 1 or more, 0 keeps all), or "),
      std::string::npos)
      << run.output;
}

// No run destroys the model of the one before, and nothing has to be set for that.
TEST_F(Resume, StartingAnewLeavesTheEarlierModel) {
  for (const std::string steps : {"2", "3", "4"}) {
    const Finished run = train("run", "--set train.steps=" + steps);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(run.output.find("the earlier run's checkpoints") != std::string::npos, steps != "2")
        << run.output;
  }
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000004"});
  for (const std::string former : {"1/step-00000002", "2/step-00000003"}) {
    const Finished verified = run_program(scratch_, "checkpoint verify run/checkpoints." + former);
    EXPECT_EQ(verified.exit_code, 0) << verified.output;
  }
  EXPECT_FALSE(fs::exists(scratch_.path("run/checkpoints.1/sluice-run.lock")));
  // What is not saved moves nothing.
  const Finished bare = train("run", "--set train.steps=1 --set checkpoint.at_end=false");
  EXPECT_EQ(bare.exit_code, 0) << bare.output;
  EXPECT_EQ(bare.output.find("the model is saved"), std::string::npos) << bare.output;
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000004"});
  EXPECT_FALSE(fs::exists(scratch_.path("run/checkpoints.3")));
}

// By a rank: its folder on NVMe holds the image of another run.
TEST_F(Resume, ARefusedStartLeavesTheEarlierModel) {
  const std::string image =
      "--set offload.optimizer=nvme --set offload.nvme_path=swap --set offload.direct=false ";
  const Finished killed = train("image", image + "--set offload.image=true",
                                {{"SLUICE_FAILPOINTS", "engine.step@4:kill"}});
  ASSERT_NE(killed.exit_code, 0) << killed.output;
  ASSERT_EQ(train("run", "--set train.steps=2").exit_code, 0);
  const Finished refused = train("run", image);
  EXPECT_EQ(refused.exit_code, 4) << refused.output;
  EXPECT_NE(refused.output.find("is part of an image"), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("run/checkpoints again"), std::string::npos) << refused.output;
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000002"});
  EXPECT_FALSE(fs::exists(scratch_.path("run/checkpoints.1")));
  const Finished other = train("run", image + "--set offload.image=true --resume auto");
  EXPECT_EQ(other.exit_code, 4) << other.output;
  EXPECT_NE(other.output.find("is of another run"), std::string::npos) << other.output;
  const Finished own = train("image", image + "--set offload.image=true --resume auto");
  EXPECT_EQ(own.exit_code, 0) << own.output;
  EXPECT_NE(own.output.find("resumed from the image"), std::string::npos) << own.output;
}

// The link leads to a larger disk, on which every run's checkpoints stay.
TEST_F(Resume, StartingAnewKeepsALinkToAnotherDisk) {
  fs::create_directory(scratch_.path("disk"));
  fs::create_directory(scratch_.path("disk/x"));
  fs::create_directory(scratch_.path("run"));
  fs::create_symlink(scratch_.path("disk/x"), scratch_.path("run/checkpoints"));
  for (const std::string steps : {"2", "3"}) {
    const Finished run = train("run", "--set train.steps=" + steps);
    ASSERT_EQ(run.exit_code, 0) << run.output;
  }
  EXPECT_TRUE(fs::is_symlink(scratch_.path("run/checkpoints")));
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000003"});
  EXPECT_TRUE(fs::exists(scratch_.path("disk/x/step-00000003")));
  EXPECT_TRUE(fs::exists(scratch_.path("disk/x.1/step-00000002")));
  EXPECT_FALSE(fs::exists(scratch_.path("run/checkpoints.1")));
}

TEST_F(Resume, ADiskWithoutRoomIsSaidBeforeTheStart) {
  const std::map<std::string, std::string> full{{"SLUICE_FAILPOINTS", "checkpoint.free_space:nan"}};
  const Finished refused = train("run", "", full);
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  EXPECT_NE(refused.output.find("and 0 B are free; name a folder with room in checkpoint.dir, or "
                                "train without saving: --set checkpoint.at_end=false"),
            std::string::npos)
      << refused.output;
  EXPECT_EQ(train("run", "--dry-run", full).exit_code, 3);
  EXPECT_FALSE(fs::exists(scratch_.path("run")));
  const Finished every =
      train("run", "--set checkpoint.every=2 --set checkpoint.time_limit=2h", full);
  EXPECT_NE(every.output.find("train without saving: --set checkpoint.at_end=false --set "
                              "checkpoint.every=0 --set checkpoint.time_limit=0"),
            std::string::npos)
      << every.output;
  const Finished bare = train("run", "--set checkpoint.at_end=false", full);
  EXPECT_EQ(bare.exit_code, 0) << bare.output;
  EXPECT_TRUE(complete("run").empty());
}

// The folder lies on a disk that is not mounted. A run would lose its model after the last step.
TEST_F(Resume, ALinkThatLeadsNowhereIsSaidBeforeTheStart) {
  fs::create_directory(scratch_.path("run"));
  fs::create_symlink("/not-mounted/x", scratch_.path("run/checkpoints"));
  for (const std::string dry : {"", "--dry-run"}) {
    const Finished refused = train("run", dry);
    EXPECT_EQ(refused.exit_code, 4) << refused.output;
    EXPECT_NE(refused.output.find("checkpoint.dir run/checkpoints: cannot write in " +
                                  scratch_.path("run/checkpoints") +
                                  ": No such file or directory; set checkpoint.dir to a folder"),
              std::string::npos)
        << refused.output;
    EXPECT_EQ(files_in(scratch_, "run").size(), 1U);
  }
}

// Of ranks: the launcher has read manifests alone.
TEST_F(Resume, AStartThatTheRanksRefuseLeavesTheFilesOfTheRunAsTheyAre) {
  const auto expect_refused = [&](const std::string& arguments, const std::string& why,
                                  const std::map<std::string, std::string>& environment = {}) {
    std::map<std::string, std::string> before;
    for (const char* name : {"config.yaml", "events.jsonl", "metrics.jsonl", "plan.json"}) {
      before[name] = scratch_.read(std::string("run/") + name);
      ASSERT_FALSE(before[name].empty()) << name;
    }
    const Finished refused = train("run", arguments + " --set optimizer.lr=77", environment);
    EXPECT_EQ(refused.exit_code, 4) << refused.output;
    EXPECT_NE(refused.output.find(why), std::string::npos) << refused.output;
    EXPECT_EQ(refused.output.find("to go on with the run"), std::string::npos) << refused.output;
    for (const auto& [name, text] : before) EXPECT_EQ(scratch_.read("run/" + name), text) << name;
    EXPECT_FALSE(fs::exists(scratch_.path("run/config.yaml.next")));
    EXPECT_FALSE(fs::exists(scratch_.path("run/plan.json.next")));
  };
  const std::string image = everything_on("nvme") + " --set offload.image=true";
  ASSERT_EQ(train("run", image, {{"SLUICE_FAILPOINTS", "engine.step@8:rank=0:kill"}}).exit_code, 5);
  expect_refused(image, "is part of an image that a training run can go on from");
  const Finished resumed = train("run", image + " --resume auto --set optimizer.lr=1e-5");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(scratch_.read("run/config.yaml").find("lr: 1e-05"), std::string::npos)
      << scratch_.read("run/config.yaml");
  fs::remove_all(scratch_.path("run"));

  ASSERT_NO_FATAL_FAILURE(crash_with_two_checkpoints());
  for (const std::string& name : complete("run")) {
    const std::string file = "run/checkpoints/" + name + "/rank-00000.safetensors";
    std::string bytes = scratch_.read(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 4);
    scratch_.write(file, bytes);
  }
  for (const auto& environment : {std::map<std::string, std::string>{}, environment_of_rank_0(1)}) {
    expect_refused("--resume auto", "no checkpoint in run/checkpoints can be read", environment);
  }
}

// With threads of libtorch's in the launcher too: a signal may come to any thread of a process.
TEST_F(Resume, TerminationSavesAndTheCurveGoesOn) {
  for (const std::string ranks : {"--nproc 2 ", "--nproc 1 --set launch.threads=2 "}) {
    SCOPED_TRACE(ranks);
    ASSERT_EQ(train("whole", ranks).exit_code, 0);
    auto run = std::async(std::launch::async, [&] {
      return train("run", ranks + "--resume auto",
                   {{"SLUICE_FAILPOINTS", "engine.step:delay=150"}});
    });
    const Finished stopped = during(
        std::move(run), [&] { return scratch_.metrics("run").size() >= 3; },
        [&] { signal_launcher(scratch_, "run", SIGTERM); });
    EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
    EXPECT_NE(stopped.output.find("stopped by request"), std::string::npos) << stopped.output;
    ASSERT_EQ(complete("run").size(), 1U) << stopped.output;
    const Finished resumed = train("run", ranks + "--resume auto");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(scratch_.curve("run"), scratch_.curve("whole"));
    fs::remove_all(scratch_.path("run"));
    fs::remove_all(scratch_.path("whole"));
  }
}

// An operator, or a batch system, ends one rank. The others finish the step with that rank, and
// nobody has failed.
TEST_F(Resume, TerminationOfOneRankIsAStopOfAll) {
  auto run = std::async(std::launch::async, [&] {
    return train("run", "--resume auto", {{"SLUICE_FAILPOINTS", "engine.step:delay=150"}});
  });
  const Finished stopped = during(
      std::move(run), [&] { return scratch_.metrics("run").size() >= 2; },
      [&] {
        const std::vector<int> ranks = rank_processes(scratch_.path(), "output.dir=run");
        ASSERT_EQ(ranks.size(), 2U);
        ::kill(ranks.back(), SIGTERM);
      });
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_NE(stopped.output.find(" received SIGTERM, saved to "), std::string::npos)
      << stopped.output;
  EXPECT_EQ(stopped.output.find("failed"), std::string::npos) << stopped.output;
  EXPECT_EQ(complete("run").size(), 1U) << stopped.output;
}

// Step 5 is evaluated for minutes.
TEST_F(Resume, AStopEndsAnEvaluation) {
  auto run = std::async(std::launch::async, [&] {
    return train("run", "--set train.eval_every=5 --set train.eval_steps=1000000");
  });
  const Finished stopped = during(
      std::move(run), [&] { return scratch_.metrics("run").size() >= 4; },
      [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));  // step 5 itself takes a few
        signal_launcher(scratch_, "run", SIGTERM);
      });
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_EQ(complete("run"), std::vector<std::string>{"step-00000005"}) << stopped.output;
  EXPECT_EQ(stopped.output.find("validation loss"), std::string::npos) << stopped.output;
  EXPECT_FALSE(scratch_.metrics("run").back().contains("eval_loss"));
}

// The launcher waits longer than the 10 s of a run that keeps nothing.
TEST_F(Resume, AStopLeavesTimeToCommitAnImage) {
  const std::string sets = everything_on("nvme") +
                           " --set offload.image=true --set checkpoint.at_end=false"
                           " --set checkpoint.every=0";
  auto run = std::async(std::launch::async, [&] {
    return train("run", sets, {{"SLUICE_FAILPOINTS", "engine.step@3:delay=14000"}});
  });
  const Finished stopped = during(
      std::move(run), [&] { return scratch_.metrics("run").size() >= 2; },
      [&] { signal_launcher(scratch_, "run", SIGTERM); });
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_NE(stopped.output.find("kept in offload.nvme_path"), std::string::npos) << stopped.output;
}

// Who starts the run again by its exit code is not to take this for a stop that saved.
TEST_F(Resume, AStopThatCannotSaveSaysSo) {
  auto run = std::async(std::launch::async, [&] {
    return train("run", "--resume auto",
                 {{"SLUICE_FAILPOINTS", "engine.step:delay=150;checkpoint.write.enospc:error"}});
  });
  const Finished stopped = during(
      std::move(run), [&] { return scratch_.metrics("run").size() >= 2; },
      [&] { signal_launcher(scratch_, "run", SIGTERM); });
  EXPECT_EQ(stopped.exit_code, 4) << stopped.output;
  EXPECT_NE(stopped.output.find("last checkpoint was not saved"), std::string::npos)
      << stopped.output;
}

TEST_F(Resume, AFileThatAppearsAsksForASave) {
  auto run = std::async(std::launch::async, [&] {
    return train("run", "--set checkpoint.at_end=false",
                 {{"SLUICE_FAILPOINTS", "engine.step:delay=150"}});
  });
  const Finished done = during(
      std::move(run), [&] { return scratch_.metrics("run").size() >= 2; },
      [&] { scratch_.write("run/save-now", ""); });
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_EQ(complete("run").size(), 1U) << done.output;
  EXPECT_FALSE(fs::exists(scratch_.path("run/save-now")));
}

// The run saves nothing by itself, so save-now's checkpoint is the one to go on from.
TEST_F(Resume, AStopAfterASaveOnRequestSaysHowToGoOn) {
  auto run = std::async(std::launch::async, [&] {
    return train("run", "--set train.steps=60 --set checkpoint.at_end=false",
                 {{"SLUICE_FAILPOINTS", "engine.step:delay=150"}});
  });
  bool asked = false;
  const Finished stopped = during(
      std::move(run),
      [&] {
        if (scratch_.metrics("run").size() >= 2 && !std::exchange(asked, true)) {
          scratch_.write("run/save-now", "");
        }
        return !complete("run").empty();
      },
      [&] { signal_launcher(scratch_, "run", SIGTERM); });
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_NE(stopped.output.find("not saved (checkpoint.at_end: false); the newest checkpoint is "
                                "run/checkpoints/step-0"),
            std::string::npos)
      << stopped.output;
  EXPECT_NE(stopped.output.find(" --resume auto\n"), std::string::npos) << stopped.output;
}

// Written behind the steps and then at once: a sync outlasts the peers' patience (half of
// launch.timeout), and nobody gives up.
TEST_F(Resume, ASlowDiskIsNoHang) {
  const Finished run = train("run", "--set checkpoint.every=5 --set launch.timeout=6s",
                             {{"SLUICE_FAILPOINTS", "checkpoint.fsync:rank=1:delay=4500"}});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(complete("run").size(), 2U);
}

TEST_F(Resume, TimeAndTheTimeLimitAskForSaves) {
  const Finished stopped =
      train("run", "--set checkpoint.every=0.5s --set checkpoint.time_limit=6s",
            {{"SLUICE_FAILPOINTS", "engine.step:delay=900"}});
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_LT(stopped.seconds, 12) << stopped.output;
  EXPECT_NE(stopped.output.find("stopped by checkpoint.time_limit after step "), std::string::npos)
      << stopped.output;
  EXPECT_NE(stopped.output.find(", saved to run/checkpoints/step-0"), std::string::npos)
      << stopped.output;
  EXPECT_EQ(stopped.output.find("failed"), std::string::npos) << stopped.output;
  EXPECT_FALSE(complete("run").empty()) << stopped.output;
  EXPECT_EQ(train("run", "--resume auto").exit_code, 0);
}

// Three syncs, 3 s, are under way from step 30 on, and as long again is needed after them.
TEST_F(Resume, TheTimeLimitCountsASaveUnderWay) {
  const Finished stopped =
      train("run", "--set train.steps=200 --set checkpoint.every=30 --set checkpoint.time_limit=5s",
            {{"SLUICE_FAILPOINTS", "engine.step:delay=50;checkpoint.fsync:delay=1000"}});
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_NE(stopped.output.find("stopped by checkpoint.time_limit"), std::string::npos)
      << stopped.output;
  EXPECT_LT(scratch_.metrics("run").size(), 60U) << stopped.output;
}

}  // namespace
}  // namespace sluice::testing
