#include "runtime/observe/progress.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "runtime/observe/terminal.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

ProgressState example_state() {
  return {.step = 120,
          .steps = 2000,
          .loss = 3.4123,
          .grad_norm = 0.8651,
          .lr = 2.9e-4,
          .step_ms = 412.3,
          .tokens_per_s = 19876,
          .mfu = 0.412,
          .device_bytes = 1395864371,
          .eta_seconds = 782.1};
}

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

std::string printed(ProgressOptions options, int steps) {
  const TemporaryFolder folder;
  options.out = std::fopen(folder.file("out").c_str(), "w");
  {
    ProgressPrinter printer(options);
    for (int step = 1; step <= steps; ++step) {
      ProgressState state = example_state();
      state.step = step;
      state.steps = 5;
      printer.update(state);
    }
  }
  std::fclose(options.out);
  return text_of(folder.file("out"));
}

std::string line(int step) {
  ProgressState state = example_state();
  state.step = step;
  state.steps = 5;
  return format_progress(state);
}

TEST(ProgressPrinter, PlainLines) {
  EXPECT_EQ(printed({.log_every = 3}, 5), line(1) + "\n" + line(3) + "\n" + line(5) + "\n");
}

TEST(ProgressPrinter, TerminalRewrites) {
  const std::string clear(kClearLine);
  EXPECT_EQ(printed({.log_every = 3, .interactive = true}, 4),
            clear + line(1) + "\n" + clear + line(2) + clear + line(3) + "\n" + clear + line(4) +
                clear);  // interrupted after step 4: the rewritten line is taken off
}

TEST(ProgressPrinter, NarrowTerminalDoesNotWrap) {
  const std::string clear(kClearLine);
  EXPECT_EQ(printed({.log_every = 3, .interactive = true, .columns = 20}, 2),
            clear + line(1) + "\n" + clear + line(2).substr(0, 19) + clear);
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

TEST(TerminalInfo, LauncherSpeaksForThePipe) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  ::unsetenv("SLUICE_TTY");
  ::setenv("COLUMNS", "77", 1);
  EXPECT_FALSE(terminal_info(ends[1]).interactive);
  ::setenv("SLUICE_TTY", "1", 1);
  EXPECT_TRUE(terminal_info(ends[1]).interactive);
  EXPECT_EQ(terminal_info(ends[1]).columns, 77);
  ::setenv("COLUMNS", "wide", 1);
  EXPECT_EQ(terminal_info(ends[1]).columns, 0);
  ::unsetenv("SLUICE_TTY");
  ::unsetenv("COLUMNS");
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace sluice
