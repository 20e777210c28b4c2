#include "runtime/run/report/timer_report.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

TEST(TimerReport, OneRank) {
  const std::vector<double> means{412.3, 120, 210, 0, 30.4, 0, 1.25};
  EXPECT_EQ(
      format_timers(means, 10),
      " timers of 10 steps, ms: step 412 | forward 120 | backward 210 | optimizer 30 | data 1.2");
}

TEST(TimerReport, FastestAndSlowestRank) {
  const std::vector<double> means{412, 118, 200, 3, 30, 0, 0, 413, 131, 210, 0, 30, 0, 0};
  EXPECT_EQ(format_timers(means, 5),
            " timers of 5 steps, ms: step 412 | forward 124 (118..131) | backward 205 (200..210) | "
            "comm 1.5 (0.0..3.0) | optimizer 30 (30..30)");
}

}  // namespace
}  // namespace sluice
