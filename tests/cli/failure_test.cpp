// How runs end that cannot go on: exit code, last lines, and nothing left behind.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

constexpr double kBoundSeconds = 25;  // launch.timeout 20 s would be the slowest way out

std::string tail(const Finished& run) {
  const std::vector<std::string> lines = run.lines();
  std::string text;
  for (std::size_t i = lines.size() > 6 ? lines.size() - 6 : 0; i < lines.size(); ++i) {
    text += lines[i] + "\n";
  }
  return text;
}

class Failing : public ::testing::Test {
 protected:
  Failing() { write_tiny(scratch_); }
  Finished run_with(const std::string& failpoints, const std::string& arguments = "") {
    Finished run = run_program(scratch_, "train tiny.yaml --set output.dir={}/run " + arguments,
                               {{"SLUICE_FAILPOINTS", failpoints}});
    EXPECT_EQ(processes_with(scratch_.path()), 0) << "a process was left";
    return run;
  }
  Scratch scratch_;
};

TEST_F(Failing, APipeIsReadOnce) {
  const std::string pipe = scratch_.path("pipe.yaml");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << scratch_.read("tiny.yaml"); });
  const Finished run = run_program(scratch_, "train pipe.yaml");
  writer.join();
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("pipe.yaml: is a pipe, and every rank reads the configuration; write "
                            "it into a file"),
            std::string::npos)
      << run.output;
}

TEST_F(Failing, ARankThatCrashesIsNamedWithItsSignal) {
  const Finished run = run_with("engine.step@5:rank=1:kill");
  EXPECT_EQ(run.exit_code, 5);
  EXPECT_LT(run.seconds, 10 + 3);
  EXPECT_NE(tail(run).find("rank 1 on "), std::string::npos) << run.output;
  EXPECT_NE(tail(run).find("SIGKILL"), std::string::npos) << run.output;
}

TEST_F(Failing, ARankThatThrowsIsNamedWithItsMessage) {
  const Finished run = run_with("engine.step@4:rank=1:error");
  EXPECT_EQ(run.exit_code, 5);
  EXPECT_NE(tail(run).find("rank 1 on "), std::string::npos) << run.output;
  EXPECT_NE(tail(run).find("failpoint engine.step"), std::string::npos) << run.output;
}

TEST_F(Failing, ACrashSaysHowToGoOn) {
  const Finished none = run_with("engine.step@5:rank=1:kill");
  EXPECT_EQ(none.output.find("--resume auto"), std::string::npos) << none.output;
  const Finished saved =
      run_with("engine.step@5:rank=1:kill",
               "--set checkpoint.every=2 --set checkpoint.async=false --resume=never");
  EXPECT_NE(tail(saved).find("the newest checkpoint is of step 4; to go on with the run:"),
            std::string::npos)
      << saved.output;
  EXPECT_EQ(saved.lines().back().find("--resume=never"), std::string::npos) << saved.output;
  EXPECT_NE(saved.lines().back().find(" --resume auto"), std::string::npos) << saved.output;
}

TEST_F(Failing, AMessageIsOnceOnTheTerminalAndInItsRanksLog) {
  const Finished run = run_with("engine.step@4:rank=0:error");
  const std::string message = "failpoint engine.step";
  const std::size_t first = run.output.find(message);
  ASSERT_NE(first, std::string::npos) << run.output;
  EXPECT_EQ(run.output.find(message, first + 1), std::string::npos) << run.output;
  EXPECT_NE(scratch_.read("run/rank-0.log").find(" failed: " + message), std::string::npos);
}

TEST_F(Failing, ARankThatHangsIsNamed) {
  const Finished run = run_with("engine.step@3:rank=1:hang", "--set launch.timeout=6s");
  EXPECT_EQ(run.exit_code, 5);
  EXPECT_LT(run.seconds, kBoundSeconds);
  EXPECT_NE(tail(run).find("rank 1 on "), std::string::npos) << run.output;
  EXPECT_NE(tail(run).find("made no progress"), std::string::npos) << run.output;
}

TEST_F(Failing, ARankThatDivergesStopsTheRunWithStepRankAndUnit) {
  const Finished run = run_with("engine.forward.4.2:rank=1:nan");
  EXPECT_EQ(run.exit_code, 5);
  EXPECT_NE(tail(run).find("step 4: loss nan"), std::string::npos) << run.output;
  EXPECT_NE(tail(run).find("rank 1, unit h.1, forward, micro-batch 0"), std::string::npos)
      << run.output;
}

TEST_F(Failing, ADataErrorEndsTheRunWithItsOwnCode) {
  const Finished run = run_with("data.read@2:rank=0:error");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_NE(tail(run).find("failpoint data.read"), std::string::npos) << run.output;
}

TEST_F(Failing, TerminationIsCleanAtAStepsEnd) {
  std::thread stopper([&] {
    while (scratch_.metrics("run").size() < 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    signal_launcher(scratch_, "run", SIGTERM);
  });
  const Finished run = run_with("engine.step:delay=100", "--set train.steps=2000");
  stopper.join();
  EXPECT_EQ(run.exit_code, 130) << run.output;
  EXPECT_LT(run.seconds, kBoundSeconds);
  EXPECT_NE(run.output.find("stopped by request"), std::string::npos) << run.output;
}

struct Bad {
  const char* name;
  const char* arguments;
  int exit_code;
  const char* said;
};

class BadInput : public ::testing::TestWithParam<Bad> {};

TEST_P(BadInput, IsRefusedBeforeAnythingStarts) {
  const Scratch scratch;
  write_tiny(scratch);
  scratch.write("empty.txt", "");
  scratch.write("short.txt", "too short");
  const Finished run = run_program(scratch, GetParam().arguments);
  EXPECT_EQ(run.exit_code, GetParam().exit_code) << run.output;
  EXPECT_NE(run.output.find(GetParam().said), std::string::npos) << run.output;
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run")));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadInput,
    ::testing::Values(
        Bad{"typo", "train tiny.yaml --set zero.stgae=3", 2, "did you mean 'stage'"},
        Bad{"batch", "train tiny.yaml --set train.global_batch=10", 2,
            "global_batch = micro_batch x accumulation x dp"},
        Bad{"heads", "train tiny.yaml --set model.heads=5", 2, "hidden"},
        Bad{"file", "train nowhere.yaml", 2, "nowhere.yaml"},
        Bad{"text", "train tiny.yaml --set data.text=[missing.txt]", 4, "missing.txt"},
        Bad{"empty", "train tiny.yaml --set data.text=[empty.txt]", 4, "empty"},
        Bad{"short", "train tiny.yaml --set data.text=[short.txt]", 4, "needs 65"},
        Bad{"vocab", "train tiny.yaml --set model.vocab=200", 2, "257"},
        Bad{"budget", "train tiny.yaml --set memory.device=1MiB", 3, "to need less"},
        Bad{"gpus", "train tiny.yaml --set launch.backend=nccl --set launch.nproc=64", 2, "GPU"},
        Bad{"later", "train tiny.yaml --set offload.optimizer=nvme", 2, "offload.optimizer"},
        Bad{"resume", "train tiny.yaml --resume somewhere", 4,
            "somewhere: there is no such checkpoint"},
        Bad{"output", "train tiny.yaml --set output.dir=/proc/nothing", 4, "output.dir"},
        Bad{"option", "train tiny.yaml --nprocs 3", 2, "nprocs"},
        Bad{"command", "trane tiny.yaml", 2, ""}),
    [](const ::testing::TestParamInfo<Bad>& info) { return std::string(info.param.name); });

TEST(Rendezvous, APortInUseIsSaidInWords) {
  const Scratch scratch;
  write_tiny(scratch);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Finished run = run_program(scratch, "train tiny.yaml", {{"MASTER_PORT", port}});
  ::close(listener);
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find(port), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("in use"), std::string::npos) << run.output;
}

}  // namespace
}  // namespace sluice::testing
