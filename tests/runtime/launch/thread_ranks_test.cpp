#include "runtime/launch/thread_ranks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/thread_rank.hpp"
#include "runtime/launch/error_report.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

TEST(ThreadRanks, EachKnowsItself) {
  std::atomic<int> sum{0};
  const int code = run_thread_ranks(
      3,
      [&](int rank) {
        EXPECT_EQ(thread_rank(), rank);
        sum += rank + 1;
        return 0;
      },
      [](int) { ADD_FAILURE() << "nobody failed"; });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(thread_rank_or(7), 7);  // not on this thread
}

TEST(ThreadRanks, ACodeOfItsOwnComesThrough) {
  EXPECT_EQ(run_thread_ranks(
                2, [](int) { return 130; }, [](int) { ADD_FAILURE(); }),
            130);
}

// Of echoes alone the earliest error counts, though its rank needs longer to end.
TEST(ThreadRanks, TheEarliestErrorOfEchoesIsReported) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "error.json").string();
  ::setenv("SLUICE_ERROR_FILE", path.c_str(), 1);
  std::atomic<bool> waited{false};
  std::atomic<bool> failed{false};
  const int code = run_thread_ranks(
      2,
      [&](int rank) -> int {
        if (rank == 0) {
          const std::exception_ptr timeout =
              std::make_exception_ptr(CommError("not done 8000 ms after the call", true));
          waited = true;
          while (!failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          std::rethrow_exception(timeout);
        }
        while (!waited) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        throw CommError("the connection broke", true);
      },
      [&](int) { failed = true; });
  ::unsetenv("SLUICE_ERROR_FILE");
  EXPECT_EQ(code, 5);
  const std::optional<ErrorReport> report = read_error_report(path);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "not done 8000 ms after the call");
}

// The echo comes first and is not what is reported.
TEST(ThreadRanks, TheCauseIsReportedAndTheOthersFail) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "error.json").string();
  ::setenv("SLUICE_ERROR_FILE", path.c_str(), 1);
  std::atomic<int> failing{0};
  std::atomic<bool> failed{false};
  const int code = run_thread_ranks(
      3,
      [&](int rank) -> int {
        if (rank == 0) throw CommError("rank 2 is gone", true);
        while (!failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (rank == 2) throw IoError("cannot read corpus.bin", "corpus.bin");
        throw CommError("aborted", true);
      },
      [&](int) {
        ++failing;
        failed = true;
      });
  ::unsetenv("SLUICE_ERROR_FILE");
  EXPECT_EQ(code, 4);
  EXPECT_EQ(failing, 1);
  const auto report = read_error_report(path);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->rank, 2);
  EXPECT_EQ(report->message, "cannot read corpus.bin");
}

}  // namespace
}  // namespace sluice
