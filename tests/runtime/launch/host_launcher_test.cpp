// Several "hosts" that are this machine, reached by a script in the place of ssh.
#include "runtime/launch/hosts/host_launcher.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/runtime/launch/launched_job.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobOptions two_hosts() {
  JobOptions options;
  options.hosts = "hosta slots=1\nhostb slots=2\n";
  options.environment = {"SLUICE_TEST_HOST=none"};
  return options;
}

TEST(HostLauncher, AllDoneAndOutputComesBack) {
  LaunchedJob job({"lines:2", "lines:1", "environment"}, two_hosts());
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "out 0 of rank 0\nout 1 of rank 0\n");
  EXPECT_THAT(job.log("host-1"), HasSubstr("[rank 1 on "));
  EXPECT_THAT(job.log("host-1"), HasSubstr("] out 0 of rank 1\n"));
  EXPECT_THAT(job.log("host-1"), HasSubstr("] RANK=2\n"));
  EXPECT_THAT(job.log("host-1"), HasSubstr("] LOCAL_RANK=1\n"));
  EXPECT_THAT(job.log("host-1"), HasSubstr("] WORLD_SIZE=3\n"));
  EXPECT_THAT(job.log("host-1"), HasSubstr("] LOCAL_WORLD_SIZE=2\n"));
  EXPECT_THAT(job.log("host-1"), HasSubstr("] MASTER_ADDR=hosta\n"));
  EXPECT_EQ(job.processes_left(), 0);
}

TEST(HostLauncher, TheSecretReachesAllHostsOnStandardInputAlone) {
  JobOptions options = two_hosts();
  const std::string secret(40, 's');
  options.environment.push_back("SLUICE_JOB_SECRET=" + secret);
  LaunchedJob job({"environment", "environment", "environment"}, options);
  EXPECT_EQ(job.wait(), 0) << job.err();
  for (const char* log : {"rank-0", "rank-1", "rank-2"}) {
    EXPECT_THAT(job.log(log), HasSubstr("SLUICE_JOB_SECRET=" + secret + "\n")) << log;
  }
  std::ifstream file(job.file("commands"));
  const std::string commands{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(commands, HasSubstr("SLUICE_AGENT="));
  EXPECT_THAT(commands, Not(HasSubstr(secret)));
}

TEST(HostLauncher, AFailureElsewhereIsNamedByRankAndEndsAll) {
  LaunchedJob job({"forever", "forever", "fail"}, two_hosts());
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.err(), HasSubstr("rank 2 on "));
  EXPECT_THAT(job.err(), HasSubstr("failed: cannot read corpus.bin: Input/output error\n"));
  EXPECT_THAT(job.err(), HasSubstr("host-1.log"));
  EXPECT_THAT(job.err(), Not(HasSubstr("\x1e")));
  EXPECT_TRUE(eventually([&] { return job.processes_left() == 0; }));
}

TEST(HostLauncher, ARankWithoutAMessageIsDescribedWithItsLastLines) {
  LaunchedJob job({"wait", "lines:1,nocore,raise:11", "stubborn,forever"}, two_hosts());
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(), HasSubstr("rank 1 on "));
  EXPECT_THAT(job.err(), HasSubstr("killed by SIGSEGV"));
  EXPECT_THAT(job.err(), HasSubstr("| out 0 of rank 1"));
  EXPECT_TRUE(eventually([&] { return job.processes_left() == 0; }));
}

TEST(HostLauncher, RanksThatStopOfThemselvesHaveNotFailed) {
  LaunchedJob job({"stop", "stop", "stop"}, two_hosts());
  EXPECT_EQ(job.wait(), 130);
  EXPECT_THAT(job.err(), Not(HasSubstr("failed")));
  EXPECT_THAT(job.err(), Not(HasSubstr("\x1e")));
  EXPECT_EQ(job.processes_left(), 0);
}

// The machine lost power, or the connection was cut: only ssh is left to say so.
TEST(HostLauncher, AHostThatIsLostIsNamed) {
  LaunchedJob job({"wait", "ready,lines:1,wait", "kill_agent"}, two_hosts());
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(), HasSubstr("host hostb (ranks 1 to 2) failed: exit code 255"));
  EXPECT_TRUE(eventually([&] { return job.processes_left() == 0; }));
}

TEST(HostLauncher, InterruptReachesTheRanksOfAllHosts) {
  if (!kSignalsArrive) GTEST_SKIP();
  LaunchedJob job({"wait", "wait", "wait"}, two_hosts());
  for (const int rank : {0, 1, 2}) job.wait_ready(rank);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_THAT(job.out(), HasSubstr("stopped at a step boundary"));
  EXPECT_THAT(job.log("host-1"), HasSubstr("[rank 1 on "));
  EXPECT_THAT(job.log("host-1"), HasSubstr("stopped at a step boundary"));
  EXPECT_EQ(job.processes_left(), 0);
}

TEST(HostLauncher, AStopBeforeARanksHandlerEndsTheOtherHosts) {
  JobOptions options = two_hosts();
  options.stop_grace_ms = 60000;
  LaunchedJob job({"ready,forever", "stubborn,ready,forever", "stubborn,ready,forever"}, options);
  for (const int rank : {0, 1, 2}) job.wait_ready(rank);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_THAT(job.err(), Not(HasSubstr("failed")));
  EXPECT_EQ(job.processes_left(), 0);
}

// Ranks of another host that were done before the stop do not hurry rank 0.
TEST(HostLauncher, AHostWhoseRanksAreDoneLeavesTheOthersTheirTime) {
  JobOptions options = two_hosts();
  options.stop_grace_ms = 60000;
  LaunchedJob job({"await,sleep:4000", "await", "await"}, options);
  for (const int rank : {0, 1, 2}) job.wait_ready(rank);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), Not(HasSubstr("killed")));
  EXPECT_EQ(job.processes_left(), 0);
}

// Remote processes are no children of the launcher: they go when their standard input ends.
TEST(HostLauncher, RanksEndWhenTheLauncherIsKilled) {
  LaunchedJob job({"ready,forever", "stubborn,ready,forever", "ready,forever"}, two_hosts());
  for (const int rank : {0, 1, 2}) job.wait_ready(rank);
  job.send(SIGKILL);
  EXPECT_EQ(job.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return job.processes_left() == 0; }));
}

TEST(HostLauncher, AHostThatCannotBeReached) {
  JobOptions options = two_hosts();
  options.environment.push_back("SLUICE_TEST_UNREACHABLE=hostb");
  LaunchedJob job({"forever", "forever", "forever"}, options);
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(), HasSubstr("host hostb (ranks 1 to 2) failed"));
  EXPECT_THAT(job.err(), HasSubstr("| no route to hostb"));
  EXPECT_EQ(job.processes_left(), 0);
}

// Exit codes of the host's shell: 127 without the program, 126 if it cannot be executed.
TEST(HostLauncher, AHostWithoutTheProgramIsNamedAndWhatItNeeds) {
  for (const char* program : {"/no/such/program", "/etc/passwd"}) {
    JobOptions options = two_hosts();
    options.executable = program;
    LaunchedJob job({"ok", "ok", "ok"}, options);
    EXPECT_EQ(job.wait(), 5) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("host host"));
    EXPECT_THAT(job.err(),
                HasSubstr("every host needs at the same path the program " + std::string(program)));
    EXPECT_EQ(job.processes_left(), 0);
  }
}

TEST(HostLauncher, AProgramInThePlaceOfSshThatIsNone) {
  JobOptions options = two_hosts();
  options.ssh = "no-such-program -x";
  LaunchedJob job({"ok", "ok", "ok"}, options);
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.err(), HasSubstr("no-such-program"));
}

}  // namespace
}  // namespace sluice
