#include "runtime/plan/timeline.hpp"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Timeline, AColumnSaysWhatTheLaneDoesMostOfIt) {
  Program program;
  for (const auto& [lane, kind] :
       std::vector<std::pair<Lane, OpKind>>{{Lane::kComm, OpKind::kGather},
                                            {Lane::kCompute, OpKind::kForward},
                                            {Lane::kCompute, OpKind::kBackward}}) {
    program.ops.push_back({.kind = kind, .lane = lane});
  }
  TimeReport time;
  time.timeline = {{0, 2.25}, {2, 6}, {6, 8}};
  EXPECT_EQ(draw_timeline(program, time, 10 + 8),
            "compute   ..FFFFBB\n"
            "comm      GGg.....\n");
  EXPECT_EQ(draw_timeline(program, time, 10 + 4),
            "compute   .FFB\n"
            "comm      Gg..\n");
}

TEST(Timeline, ExchangesStandUnderTheUnitsThatHaveThem) {
  Program program;
  program.ops = {{.kind = OpKind::kForward, .unit = 0}, {.kind = OpKind::kNormAndScale}};
  TimeReport time;
  time.timeline = {{0, 6}, {6, 8}};
  time.exchanges = {{0, 0, 1, 2}, {0, 1, 4.75, 6}};
  EXPECT_EQ(draw_timeline(program, time, 10 + 8),
            "compute   FFFFFFNN\n"
            "tensor    .T..tT..\n");
}

TEST(Timeline, NothingIsDrawnOfNothing) { EXPECT_EQ(draw_timeline({}, {}, 80), ""); }

TEST(Timeline, SecondsForPeople) {
  EXPECT_EQ(step_seconds_text(123.4), "123 s");
  EXPECT_EQ(step_seconds_text(1.234), "1.23 s");
  EXPECT_EQ(step_seconds_text(0.0412), "41.2 ms");
  EXPECT_EQ(step_seconds_text(3.2e-6), "3.2 us");
}

}  // namespace
}  // namespace sluice
