#include "runtime/observe/run_log.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

#include "base/log_level.hpp"
#include "base/thread_rank.hpp"
#include "runtime/observe/status_line.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

using ::testing::MatchesRegex;

struct Captured {
  std::string out;
  std::string err;
};

Captured logged(const RunLogOptions& options) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    const RunLog log(options);
    log_debug("detail");
    log_info("resumed {} %v");  // neither fmt's nor spdlog's signs mean anything in a line
    log_warning("nearly full");
    log_error("broken");
  }
  Captured captured;
  captured.out = ::testing::internal::GetCapturedStdout();
  captured.err = ::testing::internal::GetCapturedStderr();
  return captured;
}

#define TIME "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9][0-9][0-9]"

TEST(RunLog, LevelsAndStreams) {
  const Captured captured = logged({});
  EXPECT_THAT(captured.out, MatchesRegex(TIME " info    resumed \\{\\} %v\n"));
  EXPECT_THAT(captured.err, MatchesRegex(TIME " warning nearly full\n" TIME " error   broken\n"));
}

TEST(RunLog, OtherRanksAreNamed) {
  set_log_level(LogLevel::kWarning);
  const Captured captured = logged({.rank = 12});
  set_log_level(LogLevel::kInfo);
  EXPECT_EQ(captured.out, "");
  EXPECT_THAT(captured.err, MatchesRegex(TIME " warning \\[rank 12\\] nearly full\n" TIME
                                              " error   \\[rank 12\\] broken\n"));
}

// Here standard output is no terminal, as behind the launcher: its lines move the status line, and
// the launcher moves it for standard error.
TEST(RunLog, LinesAppearAboveTheStatusLine) {
  const std::string clear(kClearLine);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    StatusLine status(stdout, true);
    const RunLog log({.status = &status});
    status.show("50 %");
    log_info("resumed");
    log_warning("nearly full");
  }
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              MatchesRegex("50 %\r\x1b\\[K" TIME " info    resumed\n50 %\r\x1b\\[K"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex(TIME " warning nearly full\n"));
}

TEST(RunLog, ColorsOfAStandardErrorThatIsATerminal) {
  ::setenv("SLUICE_STDERR_TTY", "1", 1);
  ::setenv("TERM", "xterm", 1);
  const Captured captured = logged({});
  ::unsetenv("SLUICE_STDERR_TTY");
  EXPECT_THAT(captured.out, MatchesRegex(TIME " info    resumed \\{\\} %v\n"));
  EXPECT_THAT(captured.err, MatchesRegex(TIME " \x1b\\[33mwarning\x1b\\[0m nearly full\n" TIME
                                              " \x1b\\[31merror\x1b\\[0m   broken\n"));
}

// Ranks that are threads: what one has said is not said by the others, but errors and what a rank
// repeats itself.
TEST(RunLog, RanksOfOneProcessSayALineOnce) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    const RunLog log({});
    for (const int rank : {0, 1, 2}) {
      const ThreadRank said(rank);
      log_info("data: 162k tokens");
      log_warning("nearly full");
      log_error("broken");
      log_info("rank " + std::to_string(rank) + "'s own");
    }
    const ThreadRank said(0);
    log_info("data: 162k tokens");
  }
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              MatchesRegex(TIME " info    data: 162k tokens\n" TIME " info    rank 0's own\n" TIME
                                " info    \\[rank 1\\] rank 1's own\n" TIME
                                " info    \\[rank 2\\] rank 2's own\n" TIME
                                " info    data: 162k tokens\n"));
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      MatchesRegex(TIME " warning nearly full\n" TIME " error   broken\n" TIME
                        " error   \\[rank 1\\] broken\n" TIME " error   \\[rank 2\\] broken\n"));
}

TEST(RunLog, DebugOnRequest) {
  set_log_level(LogLevel::kDebug);
  EXPECT_NE(logged({}).out.find("debug   detail\n"), std::string::npos);
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace sluice
