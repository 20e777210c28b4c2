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

// In the order of the program. Forward, LossHead, Backward and BackwardWeights belong to segments,
// and each of them to one.
[[nodiscard]] std::vector<GraphSegment> graph_segments(const Program& program);

}  // namespace sluice
