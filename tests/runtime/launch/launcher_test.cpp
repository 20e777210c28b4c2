#include "runtime/launch/launcher.hpp"

#include <gmock/gmock.h>
#include <pty.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <sstream>

#include "base/error.hpp"
#include "base/posix/host_name.hpp"
#include "tests/runtime/launch/launched_job.hpp"

namespace sluice {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string failed(int rank, const std::string& message) {
  std::ostringstream text;
  text << "rank " << rank << " on " << host_name() << " failed: " << message << "\n";
  return text.str();
}

std::string lines_of(int rank, const char* stream, int count) {
  std::ostringstream text;
  for (int i = 0; i < count; ++i) text << stream << " " << i << " of rank " << rank << "\n";
  return text.str();
}

TEST(Launcher, AllDone) {
  LaunchedJob job({"lines:3", "lines:2", "ok"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), lines_of(0, "out", 3));
  EXPECT_EQ(job.err(), lines_of(0, "err", 3));
  // One pipe for both: the order is exact.
  EXPECT_EQ(job.log(1), "out 0 of rank 1\nerr 0 of rank 1\nout 1 of rank 1\nerr 1 of rank 1\n");
  EXPECT_EQ(job.log(2), "");
  EXPECT_FALSE(std::filesystem::exists(job.file("rank-0.error.json")));
  EXPECT_EQ(job.processes_left(), 0);
}

TEST(Launcher, EnvironmentOfRanks) {
  LaunchedJob job({"environment", "environment"},
                  {.environment = {"RANK=7", "SLUICE_TTY=1", "OMP_NUM_THREADS=3"}});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.log(1), StartsWith("RANK=1\nLOCAL_RANK=1\nWORLD_SIZE=2\nLOCAL_WORLD_SIZE=2\n"
                                     "MASTER_ADDR=127.0.0.1\nMASTER_PORT="));
  EXPECT_THAT(job.log(1), HasSubstr("OMP_NUM_THREADS=3\nSLUICE_TTY=\n"));
  const auto after_rank = [](const std::string& text) { return text.substr(text.find("WORLD")); };
  EXPECT_EQ(after_rank(job.log(0)), after_rank(job.log(1)));  // the same port
}

// What a rank printed as its job's secret.
std::string secret_in(const std::string& log) {
  const std::string name = "SLUICE_JOB_SECRET=";
  const std::size_t begin = log.find(name);
  if (begin == std::string::npos) return "";
  return log.substr(begin + name.size(), log.find('\n', begin) - begin - name.size());
}

TEST(Launcher, EachJobHasASecretThatIsNoArgument) {
  LaunchedJob job({"environment", "environment"});
  LaunchedJob other({"environment"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(other.wait(), 0);
  const std::string secret = secret_in(job.log(0));
  EXPECT_EQ(secret.size(), 64U);
  EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos) << secret;
  EXPECT_EQ(secret_in(job.log(1)), secret);
  EXPECT_NE(secret_in(other.log(0)), secret);

  const std::string given(32, 'g');
  LaunchedJob told({"environment"}, {.environment = {"SLUICE_JOB_SECRET=" + given}});
  EXPECT_EQ(told.wait(), 0);
  EXPECT_EQ(secret_in(told.log(0)), given);
  LaunchedJob weak({"environment"}, {.environment = {"SLUICE_JOB_SECRET=short"}});
  EXPECT_EQ(weak.wait(), 2);
  EXPECT_THAT(weak.err(), HasSubstr("SLUICE_JOB_SECRET has 5 characters, and 32 are the least"));
  EXPECT_THAT(weak.err(), Not(HasSubstr("short")));
}

// A fresh network namespace has its loopback interface down.
TEST(Launcher, ALoopbackThatIsDownIsSaidBeforeARankStarts) {
  TemporaryFolder folder;
  constexpr int kSaid = 10;
  constexpr int kMayNot = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool alone = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    if (!alone) ::_exit(kMayNot);
    try {
      (void)run_launcher({.nproc = 2,
                          .argv = {SLUICE_FAKE_RANK, "rank", "ok", "ok"},
                          .output_dir = (folder.path() / "run").string(),
                          .executable = SLUICE_FAKE_RANK});
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).find("ip link set lo up") != std::string::npos ? kSaid : 1);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kMayNot) GTEST_SKIP() << "network namespaces are not permitted here";
  EXPECT_EQ(WEXITSTATUS(status), kSaid);
}

TEST(Launcher, TerminalIsDescribed) {
  int master = -1;
  int slave = -1;
  winsize size{.ws_row = 24, .ws_col = 77, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
  const Descriptor owned_master(master);
  const Descriptor owned_slave(slave);
  LaunchedJob job({"environment"}, {.stdout_fd = slave});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.log(0), EndsWith("SLUICE_TTY=1\nCOLUMNS=77\n"));
  char text[4096];
  const ssize_t got = ::read(master, text, sizeof text);
  ASSERT_GT(got, 0);
  EXPECT_THAT(std::string(text, static_cast<std::size_t>(got)), HasSubstr("COLUMNS=77"));
}

TEST(Launcher, MessageOfFirstFailureIsLast) {
  LaunchedJob job({"wait", "after:0,after:2,fail", "wait"});
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.err(),
              EndsWith(failed(1, "cannot read corpus.bin: Input/output error") +
                       "  exit code 4; its log: " + job.file("rank-1.log").string() + "\n"));
  EXPECT_EQ(job.processes_left(), 0);
}

TEST(Launcher, ExitCodeWithoutMessage) {
  LaunchedJob job({"forever", "lines:1,partial,exit:7"});
  EXPECT_EQ(job.wait(), 7);
  EXPECT_THAT(job.err(), EndsWith(failed(1, "exit code 7, without a message") +
                                  "  its log: " + job.file("rank-1.log").string() +
                                  ", which ends\n    | out 0 of rank 1\n    | err 0 of rank 1\n"
                                  "    | no line break\n"));
  EXPECT_THAT(job.log(1), EndsWith("no line break"));
}

TEST(Launcher, DeathBySignal) {
  LaunchedJob job({"forever", "nocore,raise:11"});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(),
              EndsWith(failed(1, "killed by SIGSEGV (Segmentation fault)") +
                       "  its log: " + job.file("rank-1.log").string() + ", which is empty\n"));
}

TEST(Launcher, AbortOfRankZero) {
  LaunchedJob job({"nocore,abort", "forever"});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(), StartsWith(failed(0, "killed by SIGABRT (Aborted)")));
}

TEST(Launcher, OutsideKillMentionsMemory) {
  LaunchedJob job({"forever", "raise:9"});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(
      job.err(),
      HasSubstr(
          "killed by SIGKILL (Killed); the system sends this signal when memory runs out (see "
          "dmesg), unless a person or a scheduler sent it"));
}

// Rank 0 notices first, but says that the cause is elsewhere; rank 1 dies after it.
TEST(Launcher, SecondaryFailureIsNotNamed) {
  LaunchedJob job({"after:1,secondary", "stubborn,ready,sleep:100,nocore,abort"},
                  {.kill_grace_ms = 5000});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(), HasSubstr(failed(1, "killed by SIGABRT (Aborted)")));
}

TEST(Launcher, OnlySecondaryFailuresPointToTheSilentRank) {
  LaunchedJob job({"after:1,secondary", "stubborn,ready,forever"});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(),
              HasSubstr("no rank reported a cause of its own; rank 1 did not answer and had to be "
                        "killed, so look there first\n" +
                        failed(0, "connection to rank 1 lost")));
}

// Both hang at the same time; the one in the collective is not the cause.
TEST(Launcher, HangIsNamed) {
  LaunchedJob job({"stubborn,after:1,hang_in_collective:100", "stubborn,ready,hang:150"},
                  {.kill_grace_ms = 5000});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.err(),
              HasSubstr("rank 1 on " + host_name() + " failed: made no progress for 0."));
  EXPECT_THAT(job.err(), HasSubstr(" s in forward\n  exit code 5"));
}

// With the default grace, everything is gone within 10 s (wait's limit).
TEST(Launcher, RanksThatIgnoreTheRequestAreKilled) {
  LaunchedJob job(
      {"after:1,after:2,exit:3", "stubborn,ready,forever", "stubborn,grandchild,ready,forever"},
      {.kill_grace_ms = 3000});
  EXPECT_EQ(job.wait(), 3);
  EXPECT_EQ(job.processes_left(), 0);
  EXPECT_THAT(job.err(), StartsWith(failed(0, "exit code 3, without a message")));
}

TEST(Launcher, ProcessesLeftBehindAreEnded) {
  LaunchedJob job({"grandchild,ready", "daemon,ready", "daemon,grandchild,after:0,after:1,exit:2"});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(job.processes_left(), 0);
}

// Not only at the end: what the rank held, a device's memory for one, must not wait for the others.
TEST(Launcher, GroupOfAnEndedRankGoesAtOnce) {
  LaunchedJob job({"grandchild,ready", "wait"});
  job.wait_ready(0);
  job.wait_ready(1);
  EXPECT_TRUE(eventually([&] { return job.processes_left() == 2; }));  // the launcher and rank 1
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 130);
}

class StopSignals : public ::testing::TestWithParam<int> {};

TEST_P(StopSignals, RanksFinishTheirStep) {
  if (!kSignalsArrive) GTEST_SKIP();
  LaunchedJob job({"wait", "wait"});
  job.wait_ready(0);
  job.wait_ready(1);
  job.send(GetParam());
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(job.log(1), "stopped at a step boundary\n");
  EXPECT_THAT(job.err(), Not(HasSubstr("failed")));
  EXPECT_EQ(job.processes_left(), 0);
}

INSTANTIATE_TEST_SUITE_P(Launcher, StopSignals, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(Launcher, SecondInterruptKillsAtOnce) {
  LaunchedJob job({"stubborn,ready,forever", "stubborn,grandchild,ready,forever"},
                  {.stop_grace_ms = 60000});
  job.wait_ready(0);
  job.wait_ready(1);
  job.send(SIGINT);
  EXPECT_TRUE(eventually([&] { return job.err().find("stopping") != std::string::npos; }));
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(job.processes_left(), 0);
  EXPECT_THAT(job.err(), EndsWith("killed before the end: ranks 0, 1\n"));
}

// Rank 1 dies of the signal before it has a handler; rank 0 has one, and waits for rank 1.
TEST(Launcher, AStopBeforeARanksHandlerDoesNotWaitForTheStopGrace) {
  LaunchedJob job({"stubborn,ready,forever", "ready,forever"}, {.stop_grace_ms = 60000});
  job.wait_ready(0);
  job.wait_ready(1);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_THAT(job.err(), EndsWith("killed before the end: rank 0\n"));
  EXPECT_EQ(job.processes_left(), 0);
}

// Rank 0 loses rank 1, and rank 2 does not answer: neither is the cause.
TEST(Launcher, FailuresAfterAStopBeforeARanksHandlerAreNoFailures) {
  if (!kSignalsArrive) GTEST_SKIP();
  LaunchedJob job({"await,secondary", "ready,forever", "stubborn,ready,forever"});
  for (const int rank : {0, 1, 2}) job.wait_ready(rank);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_THAT(job.err(), EndsWith("killed before the end: rank 2\n"));
  EXPECT_THAT(job.err(), Not(HasSubstr("failed")));
}

// A time limit: all have finished their step, and the last of them takes longer to end than ranks
// are given after a failure.
TEST(Launcher, RanksThatStopOfThemselvesHaveNotFailed) {
  LaunchedJob job({"ready,after:1,sleep:300,stop", "after:0,ready,stop"}, {.kill_grace_ms = 50});
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(job.err(), "");
  EXPECT_FALSE(std::filesystem::exists(job.file("rank-1.error.json")));
  EXPECT_EQ(job.processes_left(), 0);
}

TEST(Launcher, AFailureBesideAStopIsTheFailure) {
  LaunchedJob job({"after:1,stop", "ready,fail"});
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.err(), StartsWith(failed(1, "cannot read corpus.bin: Input/output error")));
}

TEST(Launcher, RanksThatAreDoneBeforeTheyStopHaveFinished) {
  if (!kSignalsArrive) GTEST_SKIP();
  LaunchedJob done({"await", "await,sleep:100"});
  for (const int rank : {0, 1}) done.wait_ready(rank);
  done.send(SIGTERM);
  EXPECT_EQ(done.wait(), 0);
  LaunchedJob half({"await", "wait"});
  for (const int rank : {0, 1}) half.wait_ready(rank);
  half.send(SIGTERM);
  EXPECT_EQ(half.wait(), 130);
}

// timeout(1) sends SIGTERM to the process and to its group.
TEST(Launcher, RepeatedTermIsOneRequest) {
  if (!kSignalsArrive) GTEST_SKIP();
  LaunchedJob job({"wait"});
  job.wait_ready(0);
  job.send(SIGTERM);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(job.log(0), "stopped at a step boundary\n");
}

TEST(Launcher, StopGraceIsLimited) {
  LaunchedJob job({"stubborn,ready,forever"}, {.stop_grace_ms = 200});
  job.wait_ready(0);
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_THAT(job.err(), EndsWith("killed before the end: rank 0\n"));
}

TEST(Launcher, KilledLauncherLeavesNoRank) {
  LaunchedJob job({"stubborn,ready,forever", "wait"});
  job.wait_ready(0);
  job.wait_ready(1);
  EXPECT_EQ(job.processes_left(), 3);  // the census sees them
  job.send(SIGKILL);
  EXPECT_EQ(job.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return job.processes_left() == 0; }));
}

// The reader of the terminal's pipe never reads: neither the ranks nor the launcher may wait for
// it.
TEST(Launcher, StuckTerminalStopsNothing) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor read_end(ends[0]);
  const Descriptor write_end(ends[1]);
  LaunchedJob job({"flood:3000", "ok"}, {.stdout_fd = ends[1]});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.log(0).size(), 3000u * 1024u);
}

TEST(Launcher, TerminalThatWentAwayStopsNothing) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor write_end(ends[1]);
  ::close(ends[0]);
  LaunchedJob job({"lines:50"}, {.stdout_fd = ends[1]});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.err(), lines_of(0, "err", 50));
}

TEST(Launcher, FormerLogIsKept) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "rank-0.log") << "earlier\n";
  std::ofstream(folder.path() / "rank-0.error.json") << "{}";
  LaunchedJob job({"lines:1"});
  ASSERT_EQ(job.wait(), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl(SLUICE_FAKE_RANK, SLUICE_FAKE_RANK, "launch", folder.path().c_str(), "300", "300", "-",
            "ok", nullptr);
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text_of(folder.path() / "rank-0.log"), "");
  EXPECT_EQ(text_of(folder.path() / "rank-0.log.1"), "earlier\n");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "rank-0.error.json"));
}

TEST(Launcher, MissingExecutable) {
  LaunchedJob job({"ok", "ok"}, {.executable = "/nonexistent/sluice"});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_EQ(job.err(), "cannot start rank 0 on " + host_name() +
                           ": /nonexistent/sluice: No such file or directory\n");
}

TEST(Launcher, PortInUse) {
  LaunchedJob job({"ok"}, {.environment = {"MASTER_PORT=99999"}});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(job.err(), "MASTER_PORT='99999' must be a port, 1 to 65535\n");
}

}  // namespace
}  // namespace sluice
