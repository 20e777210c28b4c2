#include "runtime/observe/progress.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>

#include "base/log_level.hpp"
#include "runtime/observe/progress_bar.hpp"
#include "runtime/observe/status_line.hpp"
#include "runtime/observe/terminal.hpp"
#include "tests/runtime/observe/progress_example.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

TEST(Progress, ExampleOfTheIssue) {
  EXPECT_EQ(format_progress(example_state()),
            " step 120/2000 | loss 3.412 | grad norm 0.87 | lr 2.9e-04 | 412 ms | 19.9k tok/s | "
            "41 % of measured rate | device 1.3 GiB | eta 0:13:02");
}

TEST(Progress, WhatIsUnknownIsLeftOut) {
  ProgressState state = example_state();
  state.mfu = 0;
  state.device_bytes = 0;
  state.eta_seconds = -1;
  state.skipped = true;
  state.grad_norm = std::numeric_limits<double>::infinity();
  EXPECT_EQ(format_progress(state),
            " step 120/2000 | loss 3.412 | grad norm inf | skipped | lr 2.9e-04 | 412 ms | 19.9k "
            "tok/s");
}

TEST(Progress, OtherMagnitudes) {
  ProgressState state = example_state();
  state.loss = std::numeric_limits<double>::quiet_NaN();
  state.lr = 0;
  state.step_ms = 3.25;
  state.tokens_per_s = 812;
  state.mfu = 0.004;
  state.device_bytes = 432013312;
  state.eta_seconds = 100000;
  EXPECT_EQ(format_progress(state),
            " step 120/2000 | loss nan | grad norm 0.87 | lr 0.0e+00 | 3.2 ms | 812 tok/s | "
            "0 % of measured rate | device 412 MiB | eta 27:46:40");
  state.step_ms = 61234;
  state.tokens_per_s = 3.41e6;
  state.device_bytes = 14602888806;
  EXPECT_NE(format_progress(state).find(" | 61.2 s | 3.41M tok/s | "), std::string::npos);
  EXPECT_NE(format_progress(state).find(" | device 13.6 GiB | "), std::string::npos);
}

TEST(Progress, ACardThatIsKnownHasItsShareToo) {
  ProgressState state = example_state();
  state.mfu_of_card = 0.331;
  EXPECT_NE(format_progress(state).find(" | 41 % of measured rate, 33 % of card | device"),
            std::string::npos);
}

TEST(Progress, NumbersWithoutBounds) {
  ProgressState state = example_state();
  state.loss = 1e300;
  state.tokens_per_s = std::numeric_limits<double>::infinity();
  EXPECT_NE(format_progress(state).find(" | ? tok/s | "), std::string::npos);
}

// The lines of a file and the rewritten line of a "terminal", which here is the same file.
std::string printed(std::int64_t log_every, bool rewrites, int steps) {
  const TemporaryFolder folder;
  std::FILE* out = std::fopen(folder.file("out").c_str(), "w");
  {
    StatusLine status(out, rewrites);
    ProgressPrinter printer(log_every, status, out);
    for (int step = 1; step <= steps; ++step) {
      ProgressState state = example_state();
      state.step = step;
      state.steps = 5;
      printer.update(state);
    }
  }
  std::fclose(out);
  return text_of(folder.file("out"));
}

ProgressState state_of(int step) {
  ProgressState state = example_state();
  state.step = step;
  state.steps = 5;
  return state;
}

std::string line(int step) { return format_progress(state_of(step)) + "\n"; }
std::string bar(int step) { return format_progress_bar(state_of(step), {}); }

TEST(ProgressPrinter, PlainLines) { EXPECT_EQ(printed(3, false, 5), line(1) + line(3) + line(5)); }

TEST(ProgressPrinter, TerminalHasALineAtItsBottom) {
  ::unsetenv("COLUMNS");
  const std::string clear(kClearLine);
  EXPECT_EQ(printed(3, true, 4), line(1) + bar(1) + clear + bar(2) + clear + line(3) + bar(2) +
                                     clear + bar(3) + clear + bar(4) +
                                     clear);  // interrupted after step 4: the line is taken off
}

TEST(ProgressPrinter, TheLastStepLeavesNoBar) {
  ::unsetenv("COLUMNS");
  EXPECT_TRUE(printed(3, true, 5).ends_with(bar(4) + std::string(kClearLine) + line(5)));
}

TEST(ProgressPrinter, QuietShowsNothing) {
  set_log_level(LogLevel::kWarning);
  EXPECT_EQ(printed(1, true, 5), "");
  set_log_level(LogLevel::kInfo);
}

TEST(EtaEstimator, ForgetsTheSlowStart) {
  EtaEstimator eta;
  EXPECT_EQ(eta.seconds(10), -1);
  eta.add(1000);
  EXPECT_DOUBLE_EQ(eta.seconds(10), 10);
  eta.add(500);
  EXPECT_DOUBLE_EQ(eta.seconds(4), 3);
  for (int i = 0; i < 400; ++i) eta.add(100);
  EXPECT_NEAR(eta.seconds(10), 1, 1e-6);
  EXPECT_EQ(eta.seconds(0), 0);
  EXPECT_EQ(eta.seconds(-3), 0);
}

}  // namespace
}  // namespace sluice
