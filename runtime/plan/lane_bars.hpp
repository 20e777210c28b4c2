// The lanes of a step as a limited number of bars. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/program/model/time_model.hpp"

namespace sluice {

// Compute, wire, host, copies, pipe; a row for each direction of the disk, and one for the
// exchanges inside units.
inline constexpr int kBarRows = kLaneCount + 2;
[[nodiscard]] const char* bar_row_name(int row);
// True if the row's bytes go to other ranks; false if they move between tiers.
[[nodiscard]] bool bar_row_sends(int row);

struct LaneBar {
  int row = 0;
  OpId op = -1;  // the longest operation of the bar
  int count = 1;
  double begin_s = 0;
  double end_s = 0;
  double busy_s = 0;       // seconds at work
  std::int64_t bytes = 0;  // sent or moved
};

struct LaneBars {
  std::vector<LaneBar> bars;  // by row, then by begin
  std::size_t instant = 0;    // operations that take no time: no bar
  bool merged = false;        // some bars stand for several operations
};

// With more than `most_bars` operations, short neighbours in a row become one bar with their number
// and their working time. REQUIRES: `time` is of this program.
[[nodiscard]] LaneBars lane_bars(const Program& program, const TimeReport& time,
                                 std::size_t most_bars = 100'000);

}  // namespace sluice
