#include "runtime/plan/lane_bars.hpp"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(LaneBars, OneForEachOperationThatTakesTime) {
  Program program;
  program.ops = {{.kind = OpKind::kWriteStates, .lane = Lane::kDisk, .moved_bytes = 5},
                 {.kind = OpKind::kRelease, .lane = Lane::kCompute},
                 {.kind = OpKind::kReadStates, .lane = Lane::kDisk, .moved_bytes = 3},
                 {.kind = OpKind::kForward, .lane = Lane::kCompute}};
  const LaneBars bars = lane_bars(program, {.timeline = {{0, 4}, {1, 1}, {1, 2}, {1, 3}}});
  ASSERT_EQ(bars.bars.size(), 3U);
  EXPECT_EQ(bars.instant, 1U);
  EXPECT_FALSE(bars.merged);
  EXPECT_STREQ(bar_row_name(bars.bars[0].row), "compute");
  EXPECT_STREQ(bar_row_name(bars.bars[1].row), "disk read");
  EXPECT_STREQ(bar_row_name(bars.bars[2].row), "disk write");
  EXPECT_EQ(bars.bars[2].op, 0);
  EXPECT_EQ(bars.bars[2].bytes, 5);
}

TEST(LaneBars, ExchangesInsideUnitsHaveARow) {
  Program program;
  program.exchanges = {{{.bytes = 7, .times = 2}}};
  program.ops = {{.kind = OpKind::kForward, .unit = 1, .exchanges = 0}};
  const LaneBars bars = lane_bars(program, {.timeline = {{0, 4}}, .exchanges = {{0, 0, 3, 4}}});
  ASSERT_EQ(bars.bars.size(), 2U);
  EXPECT_STREQ(bar_row_name(bars.bars[1].row), "tensor");
  EXPECT_TRUE(bar_row_sends(bars.bars[1].row));
  EXPECT_EQ(bars.bars[1].bytes, 14);
  EXPECT_EQ(bars.bars[1].begin_s, 3);
}

// Nothing is lost: counts, work and bytes add up, and long operations stay as they are.
TEST(LaneBars, TooManyAreFewerThatSaySo) {
  constexpr int kOps = 30'000;
  Program program;
  std::vector<OpInterval> timeline;
  double at = 0;
  for (int i = 0; i < kOps; ++i) {
    const bool is_long = i % 10'000 == 5'000;
    program.ops.push_back({.kind = is_long ? OpKind::kUpdate : OpKind::kForward,
                           .lane = i % 2 == 0 ? Lane::kCompute : Lane::kComm,
                           .wire_bytes = 1});
    timeline.push_back({at, at + (is_long ? 5000.0 : 0.5)});
    at = timeline.back().end + 0.25;
  }
  const LaneBars bars = lane_bars(program, {.timeline = timeline}, 2000);
  EXPECT_TRUE(bars.merged);
  EXPECT_LE(bars.bars.size(), 2000U);
  int count = 0;
  int long_ones = 0;
  double busy = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < bars.bars.size(); ++i) {
    const LaneBar& bar = bars.bars[i];
    count += bar.count;
    busy += bar.busy_s;
    bytes += bar.bytes;
    EXPECT_LE(bar.busy_s, bar.end_s - bar.begin_s + 1e-9);
    if (i > 0 && bars.bars[i - 1].row == bar.row) {
      EXPECT_GE(bar.begin_s, bars.bars[i - 1].end_s - 1e-9);
    }
    if (bar.end_s - bar.begin_s == 5000) {
      ++long_ones;
      EXPECT_EQ(bar.count, 1);
      EXPECT_EQ(program.ops[static_cast<std::size_t>(bar.op)].kind, OpKind::kUpdate);
    }
  }
  EXPECT_EQ(count, kOps);
  EXPECT_EQ(bytes, kOps);
  EXPECT_EQ(long_ones, 3);
  EXPECT_NEAR(busy, 3 * 5000 + (kOps - 3) * 0.5, 1e-3);
}

TEST(LaneBars, NothingOfNothing) { EXPECT_TRUE(lane_bars({}, {}).bars.empty()); }

}  // namespace
}  // namespace sluice
