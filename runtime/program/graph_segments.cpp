#include "runtime/program/graph_segments.hpp"

#include <algorithm>
#include <utility>

namespace sluice {

bool may_be_recorded(const Op& op) {
  return op.kind == OpKind::kForward || op.kind == OpKind::kLossHead ||
         op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeights ||
         op.kind == OpKind::kRoundGrads || op.kind == OpKind::kRelease ||
         (op.kind == OpKind::kGather && op.lane == Lane::kCompute);
}

int most_ops_of_segment(const Program& program) {
  const auto has = [&](auto... lanes) {
    return std::any_of(program.ops.begin(), program.ops.end(),
                       [=](const Op& op) { return (... || (op.lane == lanes)); });
  };
  const bool copies = has(Lane::kToHost, Lane::kToDevice) && !has(Lane::kPipe);
  return copies ? kSegmentOpsBesideCopies : 0;
}

SegmentWalk::Place SegmentWalk::enter(const Op& op) {
  open_ = open_ && op.waits.empty() && may_be_recorded(op);
  if (op.kind == OpKind::kRelease || !may_be_recorded(op)) return Place::kOutside;
  const bool full = most_ops_ > 0 && ops_ == most_ops_;
  const bool goes_on = std::exchange(open_, true) && !full;
  ops_ = goes_on ? ops_ + 1 : 1;
  return goes_on ? Place::kGoesOn : Place::kBegins;
}

std::vector<GraphSegment> graph_segments(const Program& program) {
  std::vector<GraphSegment> segments;
  SegmentWalk walk(most_ops_of_segment(program));
  const auto ops = static_cast<OpId>(program.ops.size());
  for (OpId i = 0; i < ops; ++i) {
    const SegmentWalk::Place place = walk.enter(nth(program.ops, i));
    if (place == SegmentWalk::Place::kOutside) continue;
    if (place == SegmentWalk::Place::kBegins) segments.push_back({i, i});
    segments.back().end = i + 1;
  }
  return segments;
}

}  // namespace sluice
