#include "runtime/observe/run_log.hpp"

#include <gmock/gmock.h>

#include "base/thread_rank.hpp"
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
  const Captured captured = logged({.rank = 12, .level = LogLevel::kWarning});
  EXPECT_EQ(captured.out, "");
  EXPECT_THAT(captured.err, MatchesRegex(TIME " warning \\[rank 12\\] nearly full\n" TIME
                                              " error   \\[rank 12\\] broken\n"));
}

TEST(RunLog, ProgressLineIsClearedFirst) {
  const std::string clear(kClearLine);
  const Captured captured = logged({.interactive = true});
  EXPECT_TRUE(captured.out.starts_with(clear));
  EXPECT_TRUE(captured.out.ends_with("%v\n" + clear + clear));  // for the warning and the error
  EXPECT_EQ(captured.err.find(clear), std::string::npos);
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
  EXPECT_NE(logged({.level = LogLevel::kDebug}).out.find("debug   detail\n"), std::string::npos);
}

}  // namespace
}  // namespace sluice
