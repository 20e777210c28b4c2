#include "runtime/program/graph_segments.hpp"

namespace sluice {

bool runs_a_unit(OpKind kind) {
  return kind == OpKind::kForward || kind == OpKind::kLossHead || kind == OpKind::kBackward ||
         kind == OpKind::kBackwardWeights;
}

std::vector<GraphSegment> graph_segments(const Program& program) {
  std::vector<GraphSegment> segments;
  const auto ops = static_cast<OpId>(program.ops.size());
  for (OpId i = 0; i < ops; ++i) {
    const Op& op = nth(program.ops, i);
    if (!runs_a_unit(op.kind)) continue;
    const bool goes_on = !segments.empty() && segments.back().end == i && op.waits.empty();
    if (!goes_on) segments.push_back({i, i});
    segments.back().end = i + 1;
  }
  return segments;
}

}  // namespace sluice
