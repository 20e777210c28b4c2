// Runs over two hosts, by hostfile and by SLURM's variables: the same losses as on one host, and a
// host that is lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/cli/network_hosts.hpp"
#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

// libtorch's results may depend on its threads, and a host with fewer ranks has more for each. The
// namespaces are one machine with one memory: gloo says that the wire is meant.
constexpr const char* kShape =
    " --set model.hidden=32 --set model.seq=32 --set train.eval_steps=0 --set launch.threads=1"
    " --set launch.backend=gloo --set train.steps=8 ";

// One host, by hostfile. Its agent has not read the tokenizer, so the model's vocabulary is not
// known there.
TEST(HostsHere, ARunWhoseVocabularyIsTheTokenizersIsSaved) {
  const Scratch scratch;
  write_tiny(scratch);
  scratch.write("hosts", "127.0.0.1 slots=2\n");
  const Finished run = run_program(scratch,
                                   "train {}/tiny.yaml --nproc 2 --set output.dir={}/run "
                                   "--set launch.hostfile={}/hosts" +
                                       std::string(kShape));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_TRUE(std::filesystem::exists(scratch.path("run/checkpoints/step-00000008"))) << run.output;
}

// One other host by name, which is this machine. The stand-in for ssh may change the command.
Finished train_elsewhere(const Scratch& scratch, const std::string& ssh, const std::string& more) {
  write_tiny(scratch);
  scratch.write("hosts", "elsewhere slots=2\n");
  scratch.write("ssh", ssh);
  return run_program(scratch,
                     "train {}/tiny.yaml --set output.dir={}/run --set launch.hostfile={}/hosts" +
                         std::string(kShape) + more,
                     {{"SLUICE_SSH", "sh " + scratch.path("ssh")}, {"MASTER_ADDR", "127.0.0.1"}});
}

TEST(HostsHere, AHostWithoutTheWorkingFolderEndsTheRunWithoutARestart) {
  const Scratch scratch;
  const Finished run =
      train_elsewhere(scratch, "exec sh -c \"$(printf %s \"$2\" | sed 's|^cd |cd /nowhere|')\"\n",
                      "--set checkpoint.every=3 --set launch.max_restarts=2");
  EXPECT_EQ(run.exit_code, 5) << run.output;
  EXPECT_NE(run.output.find("host elsewhere (ranks 0 to 1) failed: exit code 127"),
            std::string::npos)
      << run.output;
  EXPECT_NE(run.output.find("every host needs at the same path the program "), std::string::npos);
  EXPECT_NE(run.output.find("and the working folder /"), std::string::npos);
  EXPECT_EQ(run.output.find("(launch.max_restarts)"), std::string::npos) << run.output;
}

constexpr const char* kRunHere = "exec sh -c \"$2\"\n";

// The launcher measures no products and refuses no plan: its machine is none of the hosts.
TEST(HostsHere, ALauncherElsewhereLeavesTheDevicesToTheRanks) {
  const Scratch scratch;
  const Finished run = train_elsewhere(scratch, kRunHere, "--set train.dtype=bf16");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("; 2 CPU ranks, ZeRO"), std::string::npos) << run.output;
  EXPECT_EQ(scratch.metrics("run").size(), 8U);
  const std::size_t products = run.output.find("matrix products: ");
  EXPECT_NE(products, std::string::npos) << "rank 0 settles train.matmul\n" << run.output;
  EXPECT_EQ(run.output.find("matrix products: ", products + 1), std::string::npos) << run.output;
}

TEST(HostsHere, RanksElsewhereCheckTheirOwnBudgets) {
  const Scratch scratch;
  const Finished run = train_elsewhere(scratch, kRunHere, "--set memory.device=100KiB");
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find("the plan for assumed devices does not fit: memory.device: "),
            std::string::npos)
      << run.output;
  EXPECT_NE(run.output.find("rank "), std::string::npos) << run.output;
  EXPECT_NE(run.output.find(" failed: memory.device: a step needs "), std::string::npos)
      << run.output;
}

class Hosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.missing().empty()) GTEST_SKIP() << hosts_.missing();
    write_tiny(scratch_);
    scratch_.write("hosts", hosts_.address(0) + " slots=1\n" + hosts_.address(1) + "\n");
    scratch_.write("ssh", hosts_.ssh_script());
  }
  Finished train(const std::string& out, const std::string& more,
                 const std::map<std::string, std::string>& environment = {}) {
    return run_program(scratch_, "train {}/tiny.yaml --set output.dir={}/" + out + kShape + more,
                       environment);
  }
  Finished train_on_hosts(const std::string& out, const std::string& more,
                          std::map<std::string, std::string> environment = {}) {
    environment["SLUICE_SSH"] = "sh " + scratch_.path("ssh");
    return train(out, "--nproc 1 --set launch.hostfile={}/hosts " + more, environment);
  }
  // The task of a host with what srun sets for it: the exit code; its output goes to task-N.out.
  int run_task(int host) const {
    const std::string n = std::to_string(host);
    const std::string command =
        "cd " + scratch_.path() + " && SLURM_PROCID=" + n + " SLURM_NODEID=" + n +
        " SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE='1(x2)' SLURM_JOB_ID=4711" +
        " SLURM_STEP_ID=0 SLURM_NODELIST=" + hosts_.address(0) + "," + hosts_.address(1) + " " +
        hosts_.run_on(host) + "timeout 120 " + SLUICE_BINARY_DIR +
        "/runtime/cli/sluice train tiny.yaml --set output.dir=two" + kShape + "> task-" + n +
        ".out 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  }
  // Once run "two" has come so far.
  void signal_other_host_in_step(std::size_t step, int signal) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (scratch_.metrics("two").size() < step && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(hosts_.signal_all_on(1, signal));
  }
  bool all_gone() const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (hosts_.processes_on(0) + hosts_.processes_on(1) > 0) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  }

  Scratch scratch_;
  const NetworkHosts hosts_;
};

TEST_F(Hosts, ByHostfileTheLossesAreThoseOfOneHost) {
  const Finished one = train("one", "--nproc 2");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const Finished two = train_on_hosts("two", "");
  ASSERT_EQ(two.exit_code, 0) << two.output;
  EXPECT_EQ(scratch_.curve("two"), scratch_.curve("one"));
  EXPECT_EQ(scratch_.metrics("two").size(), 8U);
  EXPECT_NE(two.output.find("; 2 CPU ranks, ZeRO"), std::string::npos) << two.output;
  EXPECT_EQ(two.output.find("has no secret"), std::string::npos) << two.output;
  EXPECT_NE(scratch_.read("two/host-1.log"), "");
  EXPECT_TRUE(all_gone());
}

TEST_F(Hosts, BySlurmsVariablesTheLossesAreThoseOfOneHost) {
  const Finished one = train("one", "--nproc 2");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  auto other = std::async(std::launch::async, [&] { return run_task(1); });
  const int first = run_task(0);
  EXPECT_EQ(first, 0) << scratch_.read("task-0.out");
  EXPECT_EQ(other.get(), 0) << scratch_.read("task-1.out");
  // Rank 0 warns, and only where nobody gave the job a secret.
  const std::string warning = "has no secret";
  EXPECT_NE(scratch_.read("task-0.out").find(warning), std::string::npos);
  EXPECT_EQ(scratch_.read("task-1.out").find(warning), std::string::npos);
  EXPECT_EQ(scratch_.curve("two"), scratch_.curve("one"));
}

TEST_F(Hosts, ALostHostIsSurvivedByARestart) {
  ASSERT_EQ(train("one", "--nproc 2").exit_code, 0);
  std::thread enemy([&] { signal_other_host_in_step(5, SIGKILL); });
  const Finished run = train_on_hosts("two",
                                      "--set checkpoint.every=3 --set checkpoint.async=false"
                                      " --set launch.max_restarts=1",
                                      {{"SLUICE_FAILPOINTS", "engine.step:delay=200"}});
  enemy.join();
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("host " + hosts_.address(1) + " (rank 1) failed"), std::string::npos)
      << run.output;
  EXPECT_NE(run.output.find("restart 1 of 1 (launch.max_restarts), from the newest checkpoint"),
            std::string::npos)
      << run.output;
  EXPECT_EQ(scratch_.curve("two"), scratch_.curve("one"));
  EXPECT_TRUE(all_gone());
}

TEST_F(Hosts, AFailureOnTheOtherHostIsNamedAndEndsBoth) {
  const Finished run =
      train_on_hosts("two", "", {{"SLUICE_FAILPOINTS", "engine.step@4:rank=1:error"}});
  EXPECT_EQ(run.exit_code, 5) << run.output;
  EXPECT_NE(run.output.find("rank 1 on "), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("failpoint engine.step"), std::string::npos) << run.output;
  EXPECT_TRUE(all_gone());
}

// The machine hangs and its connection stays: the collective's timeout says who is missing.
TEST_F(Hosts, AHostThatDoesNotAnswerIsSaid) {
  std::thread enemy([&] { signal_other_host_in_step(3, SIGSTOP); });
  const Finished run = train_on_hosts("two", "--set launch.timeout=5s --set train.steps=500",
                                      {{"SLUICE_FAILPOINTS", "engine.step:delay=100"}});
  enemy.join();
  EXPECT_EQ(run.exit_code, 5) << run.output;
  EXPECT_LT(run.seconds, 40) << run.output;
  EXPECT_NE(run.output.find("the connection was cut: " + hosts_.address(1)), std::string::npos)
      << run.output;
  const std::vector<std::string> lines = run.lines();
  std::string last;
  for (std::size_t i = lines.size() > 3 ? lines.size() - 3 : 0; i < lines.size(); ++i) {
    last += lines[i] + "\n";
  }
  for (const char* said : {"rank 0 on ", " #", " of group world failed on rank 0 of 2", "rank 1"}) {
    EXPECT_NE(last.find(said), std::string::npos) << said << " in\n" << last;
  }
}

TEST(Slurm, AContradictionIsRefusedBeforeAnythingStarts) {
  const Scratch scratch;
  write_tiny(scratch);
  std::map<std::string, std::string> task{{"SLURM_PROCID", "2"},
                                          {"SLURM_NTASKS", "2"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_NODELIST", "n[1-2]"},
                                          {"SLURM_NODEID", "0"},
                                          {"SLURM_JOB_ID", "1"},
                                          {"SLURM_TASKS_PER_NODE", "1(x2)"}};
  const Finished run = run_program(scratch, "train tiny.yaml", task);
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("SLURM_PROCID=2 must be below SLURM_NTASKS=2"), std::string::npos);
  task["SLURM_PROCID"] = "0";
  scratch.write("hosts", "n1\nn2\n");
  const Finished both = run_program(scratch, "train tiny.yaml --set launch.hostfile=hosts", task);
  EXPECT_EQ(both.exit_code, 2) << both.output;
  EXPECT_NE(both.output.find("launch.hostfile"), std::string::npos) << both.output;
}

TEST(Hostfile, IsReadBeforeAnythingStarts) {
  const Scratch scratch;
  write_tiny(scratch);
  scratch.write("hosts", "node1 slots=two\n");
  const Finished run = run_program(scratch, "train tiny.yaml --set launch.hostfile=hosts");
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("hosts:1: 'slots=two' is not understood"), std::string::npos)
      << run.output;
  scratch.write("hosts", "localhost slots=2\n");
  const Finished other =
      run_program(scratch, "train tiny.yaml --nproc 3 --set launch.hostfile=hosts");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_NE(other.output.find("--nproc 3: launch.hostfile hosts gives localhost slots=2; leave"),
            std::string::npos)
      << other.output;
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run")));
}

}  // namespace
}  // namespace sluice::testing
