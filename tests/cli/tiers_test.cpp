// Memory tiers as a user has them: the same training, budgets of every tier, who may use a folder,
// and what is left in it.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "tests/cli/tier_runs.hpp"

namespace sluice::testing {
namespace {

constexpr const char* kShort = " --set train.steps=6";

class Tiers : public ::testing::Test {
 protected:
  Tiers() { write_tiny(scratch_); }
  Finished train(const std::string& out, const std::string& arguments,
                 const std::map<std::string, std::string>& environment = {}) {
    return run_program(scratch_, "train tiny.yaml --set output.dir=" + out + arguments,
                       environment);
  }
  nlohmann::json plan(const std::string& run) const {
    return nlohmann::json::parse(scratch_.read(run + "/plan.json"));
  }
  Scratch scratch_;
};

TEST_F(Tiers, WhereStatesLiveChangesNoBit) {
  ASSERT_EQ(train("device", kShort).exit_code, 0);
  EXPECT_TRUE(plan("device")["tiers"]["device"]["budget"].is_null());
  const std::string expected = scratch_.curve("device");
  for (const std::string tier : {"host", "nvme"}) {
    const Finished run = train(tier, kShort + everything_on(tier));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(scratch_.curve(tier), expected) << tier;
    EXPECT_NE(run.output.find("host peak: planned "), std::string::npos) << run.output;
    EXPECT_EQ(run.output.find("nvme peak: planned ") != std::string::npos, tier == "nvme");
  }
  EXPECT_EQ(files_in(scratch_, "swap"), std::vector<std::string>());
}

TEST_F(Tiers, MetricsHoldEveryTierAndThePlanForetoldThem) {
  const std::string sets =
      " --set train.steps=4 --set memory.device=64MiB --set memory.host=256MiB"
      " --set memory.nvme=1GiB";
  ASSERT_EQ(train("run", sets + everything_on("nvme")).exit_code, 0);
  const nlohmann::json planned = plan("run");
  EXPECT_TRUE(planned["fits"].get<bool>());
  EXPECT_EQ(planned["tiers"]["device"]["budget"], 64 << 20);
  EXPECT_EQ(planned["tiers"]["host"]["budget"], 128 << 20);  // of two ranks
  EXPECT_EQ(planned["tiers"]["nvme"]["budget"], 512 << 20);
  EXPECT_GT(planned["tiers"]["nvme"]["by_tag"]["moments"], 0);
  EXPECT_GT(planned["tiers"]["host"]["by_tag"]["state_staging"], 0);
  EXPECT_GT(planned["nvme_write_bytes_per_step"], 0);
  for (const nlohmann::json& step : scratch_.metrics("run")) {
    const nlohmann::json& memory = step["memory"];
    EXPECT_EQ(memory["nvme"], planned["tiers"]["nvme"]["peak"]);
    EXPECT_NEAR(memory["host_peak"].get<double>() / planned["tiers"]["host"]["peak"].get<double>(),
                1, 0.01);
    EXPECT_EQ(memory["pinned"], 0);
    EXPECT_GT(step["timers_ms"]["io"], 0);
  }
  const nlohmann::json third = scratch_.metrics("run")[2]["memory"];
  EXPECT_NEAR(third["device_peak"].get<double>() / planned["tiers"]["device"]["peak"].get<double>(),
              1, 0.01);
}

TEST_F(Tiers, TheDryRunHasAColumnForEachTierAndMakesNoFile) {
  const Finished run = train("run", " --dry-run" + everything_on("nvme"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("memory of a rank, each tier where it is highest\n"
                            "                                 device         host         nvme\n"),
            std::string::npos)
      << run.output;
  EXPECT_NE(run.output.find("\nnvme: "), std::string::npos) << run.output;
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("swap")));
}

TEST_F(Tiers, ABudgetThatIsTooSmallIsRefusedBeforeAnythingStarts) {
  const struct {
    const char* budget;
    const char* tier;
    std::vector<const char*> said;
  } rows[] = {
      {"memory.host=8MiB",
       "nvme",
       {"memory.host: a step needs ",
        " more than the budget of 4.00 MiB, its share of the host's "
        "(2 ranks).\n  largest: nvme_store 4.00 MiB, state_staging ",
        "\n  to need less: --set offload.chunk_bytes=<less>, --set offload.chunks=2, --set "
        "offload.queue_depth=<fewer>, --set memory.host=<more>\n"}},
      {"memory.host=1MiB",
       "host",
       {"memory.host: a step needs ", ".\n  largest: ", "moments ",
        "\n  to need less: --set offload.optimizer=nvme, --set offload.parameters=nvme, --set "
        "offload.gradients=nvme, --set offload.activations=nvme, --set "
        "offload.chunk_bytes=<less>, --set offload.chunks=2, --set memory.host=<more>\n"}},
      {"memory.nvme=1MiB",
       "nvme",
       {"memory.nvme: a step needs 1.00 MiB a rank, 512 KiB more than the budget of 512 KiB, its "
        "share of the host's (2 ranks).\n  largest: moments ",
        "\n  to need less: --set offload.host_fraction=<more>, --set offload.optimizer=host, --set "
        "offload.parameters=host, --set offload.gradients=host, --set offload.activations=host, "
        "--set memory.nvme=<more>\n"}},
  };
  for (const auto& row : rows) {
    const Finished run = train("run", everything_on(row.tier) + " --set " + row.budget);
    EXPECT_EQ(run.exit_code, 3) << run.output;
    for (const char* said : row.said) {
      EXPECT_NE(run.output.find(said), std::string::npos) << said << "\n" << run.output;
    }
    EXPECT_EQ(train("run", everything_on(row.tier) + " --dry-run --set " + row.budget).exit_code,
              3);
    EXPECT_FALSE(std::filesystem::exists(scratch_.path("run"))) << row.budget;
    EXPECT_FALSE(std::filesystem::exists(scratch_.path("swap"))) << row.budget;
  }
}

TEST_F(Tiers, TheDevicesComplaintNamesTheNextTier) {
  const Finished run = train("run", " --set memory.device=1MiB --set recompute.mode=full");
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find("--set offload.optimizer=host, --set offload.activations=host"),
            std::string::npos)
      << run.output;
}

// What the plan says is what the steps take: a budget of just that much is kept, a byte less is
// not. A save takes 256 KiB a rank of memory.host beside the plan.
TEST_F(Tiers, ThePlansBytesAreEnough) {
  const std::string one_step =
      " --set train.steps=1 --set train.eval_steps=0 --set checkpoint.at_end=false";
  struct Case {
    std::string out, on, budget, more;
  };
  // The store's own bytes on the host, a hash for each block of each array among them.
  for (const Case& c : {Case{"host", "host", "host", ""}, Case{"nvme", "nvme", "nvme", ""},
                        Case{"store", "nvme", "host", ""},
                        Case{"image", "nvme", "host", " --set offload.image=true"},
                        Case{"image_of_stages", "nvme", "nvme",
                             " --set offload.image=true --set parallel.pipeline=2"
                             " --set model.tie_embeddings=false"}}) {
    SCOPED_TRACE(c.out);
    const std::string sets = one_step + everything_on(c.on) + c.more + " --set memory." + c.budget;
    ASSERT_EQ(train(c.out, sets + "=1GiB").exit_code, 0);
    const std::int64_t peak = plan(c.out)["tiers"][c.budget]["peak"];
    const Finished enough = train(c.out, sets + "=" + std::to_string(2 * peak));
    EXPECT_EQ(enough.exit_code, 0) << enough.output;
    EXPECT_EQ(train(c.out, sets + "=" + std::to_string(2 * peak - 1) + " --dry-run").exit_code, 3);
  }
}

// All tiers are a GPU's as well, with dropout too: only GPUs are missing.
TEST_F(Tiers, OnAGpuNoneIsRefused) {
  const std::string gpus =
      " --set launch.backend=nccl --set launch.nproc=64 --set train.global_batch=128";
  for (const std::string& sets :
       {everything_on("host"),
        std::string(" --set model.dropout=0.1 --set offload.activations=host")}) {
    const Finished states = train("run", gpus + sets);
    EXPECT_EQ(states.exit_code, 2);
    EXPECT_NE(states.output.find("64 ranks need as many GPUs"), std::string::npos) << states.output;
  }
}

// The step is run again to find the value: without its updates, which it has made already.
TEST_F(Tiers, ADivergingUnitIsNamedAsOnTheDevice) {
  for (const std::string tier : {"host", "nvme"}) {
    const Finished run = train("run", kShort + everything_on(tier),
                               {{"SLUICE_FAILPOINTS", "engine.forward.4.2:rank=1:nan"}});
    EXPECT_EQ(run.exit_code, 5) << run.output;
    EXPECT_NE(run.output.find("step 4: loss nan"), std::string::npos) << run.output;
    EXPECT_NE(run.output.find("rank 1, unit h.1, forward, micro-batch 0"), std::string::npos)
        << run.output;
  }
  EXPECT_EQ(files_in(scratch_, "swap"), std::vector<std::string>());
}

// A run of two ranks on swap/ that goes on until it is ended.
class LongRun {
 public:
  explicit LongRun(const Scratch& scratch) : scratch_(scratch) {
    ended_ = std::async(std::launch::async, [&scratch] {
      return run_program(
          scratch,
          "train tiny.yaml --set output.dir=first --set train.steps=100000" + everything_on("nvme"),
          {{"SLUICE_FAILPOINTS", "engine.step:delay=20"}});
    });
    while (scratch.metrics("first").size() < 2 && !is_over()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~LongRun() {
    if (!is_over()) signal_launcher(SIGKILL);
  }

  // The process of a rank: its lock says so.
  [[nodiscard]] int rank_pid(int rank = 0) const {
    std::istringstream lock(scratch_.read("swap/rank-0000" + std::to_string(rank) + ".lock"));
    std::string run_id;
    int pid = 0;
    std::getline(lock, run_id);
    lock >> pid;
    return pid;
  }
  void signal_launcher(int signal) const {
    std::ifstream stat("/proc/" + std::to_string(rank_pid()) + "/stat");
    std::string pid;
    std::string name;
    std::string state;
    int parent = 0;
    stat >> pid >> name >> state >> parent;
    if (parent > 1) ::kill(parent, signal);
  }
  [[nodiscard]] bool is_over() {
    return !ended_.valid() || ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  Finished result() { return ended_.get(); }

 private:
  const Scratch& scratch_;
  std::future<Finished> ended_;
};

TEST_F(Tiers, OneRunAFolderAndCtrlCLeavesNothing) {
  LongRun first(scratch_);
  const auto named = [&](int rank) {
    return "(pid " + std::to_string(first.rank_pid(rank)) + " on host ";
  };
  ASSERT_GT(first.rank_pid(), 1);
  const Finished second = train("second", everything_on("nvme"));
  EXPECT_EQ(second.exit_code, 4) << second.output;
  EXPECT_NE(second.output.find("swap is in use by run '/"), std::string::npos) << second.output;
  EXPECT_NE(second.output.find("/first of 20"), std::string::npos) << second.output;
  // The message of one rank is shown, of whichever failed first.
  const bool names_holder = second.output.find(named(0)) != std::string::npos ||
                            second.output.find(named(1)) != std::string::npos;
  EXPECT_TRUE(names_holder) << second.output;
  ASSERT_FALSE(first.is_over()) << "the second run has disturbed the first";
  first.signal_launcher(SIGINT);
  const Finished ended = first.result();
  EXPECT_EQ(ended.exit_code, 130) << ended.output;
  EXPECT_EQ(files_in(scratch_, "swap"), std::vector<std::string>());
}

TEST_F(Tiers, WhatAKilledRunLeftIsReclaimed) {
  {
    LongRun first(scratch_);
    ASSERT_GT(first.rank_pid(), 1);
    first.signal_launcher(SIGKILL);
    (void)first.result();
  }
  for (int i = 0; i < 250 && processes_with("output.dir=first") > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GE(files_in(scratch_, "swap").size(), 2U);
  const Finished second = train("second", kShort + everything_on("nvme"));
  EXPECT_EQ(second.exit_code, 0) << second.output;
  const std::string logs = scratch_.read("second/rank-0.log") + scratch_.read("second/rank-1.log");
  EXPECT_NE(logs.find("removed swap/rank-0000"), std::string::npos) << logs;
  EXPECT_NE(logs.find("left by run '/"), std::string::npos) << logs;
  EXPECT_NE(logs.find("/first of 20"), std::string::npos) << logs;
  EXPECT_EQ(files_in(scratch_, "swap"), std::vector<std::string>());
}

}  // namespace
}  // namespace sluice::testing
