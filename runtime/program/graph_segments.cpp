#include "runtime/program/graph_segments.hpp"

namespace sluice {

bool may_be_recorded(const Op& op) {
  return op.kind == OpKind::kForward || op.kind == OpKind::kLossHead ||
         op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeights ||
         op.kind == OpKind::kRelease || (op.kind == OpKind::kGather && op.lane == Lane::kCompute);
}

std::vector<GraphSegment> graph_segments(const Program& program) {
  std::vector<GraphSegment> segments;
  const auto ops = static_cast<OpId>(program.ops.size());
  bool open = false;  // nothing has interrupted the last segment
  for (OpId i = 0; i < ops; ++i) {
    const Op& op = nth(program.ops, i);
    open = open && op.waits.empty() && may_be_recorded(op);
    if (op.kind == OpKind::kRelease || !may_be_recorded(op)) continue;
    if (!open) segments.push_back({i, i});
    open = true;
    segments.back().end = i + 1;
  }
  return segments;
}

}  // namespace sluice
