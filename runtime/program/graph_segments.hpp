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

// Whether the operation may belong to a segment: the forward or a part of the backward of a unit, a
// gather of a rank alone, or a release, which does nothing on the device.
[[nodiscard]] bool may_be_recorded(const Op& op);

// Operations in a segment at most, where other operations copy between tiers: the host must not
// fill the driver's queue, in which its copies wait too. An operation launches some thirty kernels;
// a hundred where no kernel is fused.
inline constexpr int kSegmentOpsBesideCopies = 8;
// That limit if the program copies between tiers, else 0: no limit. Stages of a pipeline have none:
// they post their messages as early as they can, so that no peer waits for them.
[[nodiscard]] int most_ops_of_segment(const Program& program);

// Goes through a program, operation by operation.
class SegmentWalk {
 public:
  // `most_ops`: operations in a segment at most; 0: no limit.
  explicit SegmentWalk(int most_ops) : most_ops_(most_ops) {}

  enum class Place { kOutside, kBegins, kGoesOn };
  // Where the next operation of the program is. A release is outside, and ends no segment.
  Place enter(const Op& op);
  // Whether a segment goes on.
  [[nodiscard]] bool open() const { return open_; }

 private:
  int most_ops_;
  int ops_ = 0;        // of the last segment
  bool open_ = false;  // nothing has interrupted the last segment
};

// In the order of the program. Each operation that may be recorded belongs to one segment, but a
// release neither begins nor ends one.
[[nodiscard]] std::vector<GraphSegment> graph_segments(const Program& program);

}  // namespace sluice
