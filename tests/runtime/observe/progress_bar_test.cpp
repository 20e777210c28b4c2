#include "runtime/observe/progress_bar.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "runtime/observe/terminal.hpp"
#include "tests/runtime/observe/progress_example.hpp"

namespace sluice {
namespace {

ProgressState halfway_state() {
  ProgressState state = example_state();
  state.step = 1008;
  state.steps = 2400;
  state.trend = LossTrend{.change = -0.0214, .error = 0.004};
  return state;
}

TEST(ProgressBar, HasAllPartsWhereThereIsRoom) {
  EXPECT_EQ(
      format_progress_bar(halfway_state(), {.columns = 190, .utf8 = false}),
      " 42 % ################------------------------ 1008/2400 | eta 0:13:02 | 19.9k tok/s | "
      "loss 3.412 (-0.021) | device 1.3 GiB | 412 ms | 41 % of measured rate | grad norm 0.87 "
      "| lr 2.9e-04");
}

TEST(ProgressBar, DropsPartsInTheirOrder) {
  const auto at = [](int columns) {
    return format_progress_bar(halfway_state(), {.columns = columns, .utf8 = false});
  };
  EXPECT_EQ(at(80),
            " 42 % #####-------- 1008/2400 | eta 0:13:02 | 19.9k tok/s | loss 3.412 (-0.021)");
  EXPECT_EQ(at(60), " 42 % #####------- | eta 0:13:02 | 19.9k tok/s | loss 3.412");
  EXPECT_EQ(at(46), " 42 % #####------- | eta 0:13:02 | loss 3.412");
  EXPECT_EQ(at(36), " 42 % | eta 0:13:02 | loss 3.412");
  EXPECT_EQ(at(24), " 42 % | loss 3.412");
  EXPECT_EQ(at(10), " 42 %");
}

TEST(ProgressBar, FitsEveryWidth) {
  ProgressState state = halfway_state();
  state.loss = 1e30;
  state.skipped = true;
  for (const bool utf8 : {false, true}) {
    for (int columns = 7; columns <= 250; ++columns) {
      const std::string line = format_progress_bar(state, {.columns = columns, .utf8 = utf8});
      EXPECT_LT(columns_of(line), columns) << line;
    }
  }
}

TEST(ProgressBar, Utf8) {
  EXPECT_EQ(bar_text(0.5, 4, true), "\u2588\u2588\u2591\u2591");
  ProgressState state = halfway_state();
  EXPECT_NE(format_progress_bar(state, {.columns = 180, .utf8 = true}).find("3.412 \u21930.021"),
            std::string::npos);
  state.trend = LossTrend{.change = 0.03, .error = 0.004};
  EXPECT_NE(format_progress_bar(state, {.columns = 180, .utf8 = true}).find("3.412 \u21910.030"),
            std::string::npos);
  state.trend = LossTrend{.change = 0.03, .error = 0.02};
  EXPECT_NE(format_progress_bar(state, {.columns = 180, .utf8 = true}).find("3.412 \u2192 |"),
            std::string::npos);
}

TEST(ProgressBar, OddStates) {
  ProgressState state;
  state.loss = std::numeric_limits<double>::quiet_NaN();
  state.tokens_per_s = std::numeric_limits<double>::infinity();
  const std::string line = format_progress_bar(state, {});
  EXPECT_NE(line.find("  0 %"), std::string::npos) << line;
  EXPECT_NE(line.find("loss nan"), std::string::npos) << line;
  EXPECT_NE(line.find("? tok/s"), std::string::npos) << line;
  state.step = 7;
  state.steps = 5;
  EXPECT_TRUE(format_progress_bar(state, {}).starts_with("100 %"));
}

}  // namespace
}  // namespace sluice
