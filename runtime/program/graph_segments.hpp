// Segments: the runs of consecutive compute operations of a program that a GPU can record and
// launch as one graph. Pure.
#pragma once

#include <vector>

#include "runtime/program/program.hpp"

namespace sluice {

// Operations [begin, end) of the program. Only the first may wait for others.
struct GraphSegment {
  OpId begin = 0;
  OpId end = 0;
};

// Whether the operation belongs to a segment: the forward or a part of the backward of a unit.
[[nodiscard]] bool runs_a_unit(OpKind kind);

// In the order of the program. Each operation of a unit belongs to one segment.
[[nodiscard]] std::vector<GraphSegment> graph_segments(const Program& program);

}  // namespace sluice
