// The lanes of a step as bars, few enough to be sent and drawn. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/program/model/time_model.hpp"

namespace sluice {

// Compute, wire, host, copies, pipe; a row for each direction of the disk, and one for the
// exchanges inside units.
inline constexpr int kBarRows = kLaneCount + 2;
[[nodiscard]] const char* bar_row_name(int row);
// Whether the bytes of its bars go to other ranks; else between tiers.
[[nodiscard]] bool bar_row_sends(int row);

struct LaneBar {
  int row = 0;
  OpId op = -1;  // the longest of those it stands for
  int count = 1;
  double begin_s = 0;
  double end_s = 0;
  double busy_s = 0;       // of it, at work
  std::int64_t bytes = 0;  // sent or moved
};

struct LaneBars {
  std::vector<LaneBar> bars;  // by row, then by begin
  std::size_t instant = 0;    // operations that take no time: no bar
  bool merged = false;        // some bars stand for several operations
};

// Where there are more than `most_bars` operations, neighbours of a row that are short are one bar,
// which says how many they are and how long they work. REQUIRES: `time` is of this program.
[[nodiscard]] LaneBars lane_bars(const Program& program, const TimeReport& time,
                                 std::size_t most_bars = 100'000);

}  // namespace sluice
