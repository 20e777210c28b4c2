#include "runtime/launch/failure.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "runtime/launch/supervision.hpp"

namespace sluice {
namespace {

RankEnd exited(int rank, int code, std::int64_t time_ns, bool asked = false) {
  RankEnd end;
  end.rank = rank;
  end.host = "host7";
  end.status = code;
  end.time_ns = time_ns;
  end.asked = asked;
  end.log_path = "run/rank.log";
  return end;
}

RankEnd died(int rank, int signal, std::int64_t time_ns, bool asked = false, bool killed = false) {
  RankEnd end = exited(rank, signal, time_ns, asked);
  end.by_signal = true;
  end.killed = killed;
  return end;
}

RankEnd reported(RankEnd end, bool secondary, std::int64_t time_ns, std::string message = "why") {
  end.report = ErrorReport{.rank = end.rank,
                           .host = end.host,
                           .time_ns = time_ns,
                           .exit_code = end.status,
                           .secondary = secondary,
                           .message = std::move(message)};
  return end;
}

TEST(Failure, WhatARankTellsAfterItWasAskedToStopIsNoStop) {
  SuperviseResult asked;
  asked.interrupted = true;
  const RankEnd unsaved = reported(exited(0, 4, 1, true), false, 1, "the last checkpoint");
  const RankEnd left_alone = reported(exited(1, 5, 2, true), true, 2);
  const RankEnd killed = died(1, SIGKILL, 2, true, true);
  EXPECT_EQ(launch_result(asked, nullptr).exit_code, 130);
  EXPECT_EQ(launch_result(asked, &left_alone).exit_code, 130);
  EXPECT_EQ(launch_result(asked, &killed).exit_code, 130);
  EXPECT_EQ(launch_result(asked, &unsaved).exit_code, 4);
  EXPECT_FALSE(launch_result(asked, &unsaved).worth_restarting);
}

// A rank whose report cannot be written, since its folder was removed, prints the message.
TEST(Failure, AMessageWithoutAReportIsInTheRanksOutput) {
  RankEnd end = exited(1, 4, 1);
  EXPECT_NE(describe_failure(end).find("exit code 4, without a message"), std::string::npos);
  end.last_lines = {"the error report was not written: cannot create run/rank-1.error.json",
                    "rank 1 on host7 failed: cannot open run/metrics.jsonl: no such folder"};
  EXPECT_EQ(failure_text(end),
            "rank 1 on host7 failed: cannot open run/metrics.jsonl: no such folder");
}

// It may be the cause of what the first failure reports, and has removed none of its files.
TEST(Failure, ACrashBesideTheFirstFailureIsNamed) {
  const std::vector<RankEnd> ends = {reported(exited(0, 4, 1), false, 1), died(1, SIGSEGV, 2, true),
                                     exited(2, 5, 3, true), died(3, SIGTERM, 3, true),
                                     died(4, SIGBUS, 4, true)};
  EXPECT_EQ(
      describe_other_crashes(ends, *first_failure(ends)),
      "crashed as well: rank 1 (SIGSEGV (Segmentation fault)), rank 4 (SIGBUS (Bus error))\n");
  EXPECT_EQ(describe_other_crashes(std::span(ends).first(1), ends[0]), "");
}

// libgomp ends the process itself; its last line is all there is.
TEST(Failure, ALimitOnProcessesIsNamedWithItsRemedy) {
  RankEnd end = exited(0, 1, 1);
  end.last_lines = {"libgomp: Thread creation failed: Resource temporarily unavailable"};
  const std::string text = describe_failure(end);
  EXPECT_NE(text.find("ulimit -u is "), std::string::npos) << text;
  EXPECT_NE(text.find("launch.threads"), std::string::npos) << text;
  end.last_lines = {"out of ideas"};
  EXPECT_EQ(describe_failure(end).find("ulimit"), std::string::npos);
}

TEST(Failure, Classes) {
  EXPECT_EQ(classify(exited(0, 0, 1)), EndClass::kDone);
  EXPECT_EQ(classify(exited(0, 5, 1)), EndClass::kPrimary);
  EXPECT_EQ(classify(exited(0, 5, 1, true)), EndClass::kSecondary);
  EXPECT_EQ(classify(exited(0, 130, 1, true)), EndClass::kStopped);
  EXPECT_EQ(classify(exited(0, 130, 1)), EndClass::kPrimary);  // at once, and nobody asked it
  RankEnd stopped = reported(exited(0, 130, 1), false, 1);
  stopped.report->stopped = true;
  EXPECT_EQ(classify(stopped), EndClass::kStopped);
  RankEnd crashed = reported(died(0, SIGSEGV, 1), false, 1);
  crashed.report->stopped = true;
  EXPECT_EQ(classify(crashed), EndClass::kPrimary);
  RankEnd ended = reported(died(0, SIGTERM, 1, true), false, 1);  // as another rank had failed
  EXPECT_EQ(classify(ended), EndClass::kPrimary);
  ended.report->stopped = true;
  EXPECT_EQ(classify(ended), EndClass::kStopped);
  EXPECT_EQ(classify(died(0, SIGTERM, 1, true)), EndClass::kStopped);
  EXPECT_EQ(classify(died(0, SIGTERM, 1)), EndClass::kPrimary);
  EXPECT_EQ(classify(died(0, SIGKILL, 1, true, true)), EndClass::kStopped);
  EXPECT_EQ(classify(died(0, SIGKILL, 1, true)), EndClass::kPrimary);  // out of memory, perhaps
  EXPECT_EQ(classify(died(0, SIGSEGV, 1, true)), EndClass::kPrimary);
  EXPECT_EQ(classify(reported(exited(0, 5, 1, true), false, 1)), EndClass::kPrimary);
  // It said where the cause is, then fell over its broken connection.
  EXPECT_EQ(classify(reported(died(0, SIGABRT, 1), true, 1)), EndClass::kSecondary);
}

TEST(Failure, WorthRestarting) {
  EXPECT_TRUE(worth_restarting(died(0, SIGKILL, 1)));
  EXPECT_TRUE(worth_restarting(exited(0, 5, 1)));
  EXPECT_TRUE(worth_restarting(reported(exited(0, 4, 1), false, 1)));
  EXPECT_FALSE(worth_restarting(exited(0, 2, 1)));
  EXPECT_FALSE(worth_restarting(exited(0, 3, 1)));
  RankEnd diverged = reported(exited(0, 5, 1), false, 1);
  diverged.report->recurs = true;
  EXPECT_FALSE(worth_restarting(diverged));
}

TEST(Failure, PrimaryBeatsEarlierSecondary) {
  const std::vector<RankEnd> ends{reported(exited(0, 5, 10), true, 10),
                                  reported(exited(1, 4, 30), false, 20), died(2, SIGSEGV, 25, true),
                                  exited(3, 130, 5, true)};
  ASSERT_NE(first_failure(ends), nullptr);
  EXPECT_EQ(first_failure(ends)->rank, 1);
}

TEST(Failure, EarliestOfAClass) {
  const std::vector<RankEnd> secondary{reported(exited(0, 5, 10), true, 9),
                                       reported(exited(1, 5, 9), true, 8)};
  EXPECT_EQ(first_failure(secondary)->rank, 1);
  const std::vector<RankEnd> stopped{exited(0, 0, 1), died(1, SIGTERM, 2, true)};
  EXPECT_EQ(first_failure(stopped), nullptr);
}

TEST(Failure, Words) {
  EXPECT_EQ(describe_failure(reported(exited(1, 2, 1), false, 1, "two lines:\n  a.yaml:3: no\n")),
            "rank 1 on host7 failed: two lines:\n      a.yaml:3: no\n"
            "  exit code 2; its log: run/rank.log\n");
  RankEnd crash = died(12, SIGSEGV, 1);
  crash.last_lines = {"step 3", ""};
  EXPECT_EQ(describe_failure(crash),
            "rank 12 on host7 failed: killed by SIGSEGV (Segmentation fault)\n"
            "  its log: run/rank.log, which ends\n    | step 3\n    | \n");
  EXPECT_EQ(exit_code_of(crash), 5);
  EXPECT_EQ(exit_code_of(exited(0, 3, 1)), 3);
}

}  // namespace
}  // namespace sluice
