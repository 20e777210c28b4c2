#include "runtime/program/check/tier_check.hpp"

#include <set>

#include "base/index.hpp"
#include "runtime/program/check/chunk_check.hpp"
#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/check/touches.hpp"
#include "runtime/program/check/transit_check.hpp"

namespace sluice {
namespace {

// Records the gradients that a compute operation accesses.
void touch_grads(const Op& op, const std::set<int>& slotted, Touches& touches, ChunkCheck& chunks) {
  // Stages 0 and 1 may keep sums in the full gradient. On every stage it is now this step's.
  for (const int g : op.writes) {
    chunks.change_grads(g);
    if (slotted.count(g) == 0) touches.touch({Space::kGrads, g, 0}, true);
  }
  switch (op.kind) {
    case OpKind::kRoundGrads:
    case OpKind::kAddGrads:
    case OpKind::kAddReplicas:
      chunks.change_grads(op.group);
      return touches.touch_grads(op.group, true);
    case OpKind::kUpdate:
      return touches.touch_grads(op.group, false);
    case OpKind::kNormAndScale:
      touches.touch_all_grads(false);
      return chunks.take_squares();
    default:
      return;
  }
}

}  // namespace

std::string find_tier_fault(const Program& program, const OpOrder& order) {
  FirstFault fault(program, order);
  Touches touches(program, fault);
  ChunkCheck chunks(program, order, fault, touches);
  TransitCheck transit(program, fault, touches, chunks);
  std::set<int> slotted;  // groups whose full gradients live in slots
  for (const Buffer& buffer : program.buffers) {
    if (buffer.tag == Tag::kGradientBuckets) slotted.insert(buffer.group);
  }
  for (OpId i = 0; i < static_cast<OpId>(program.ops.size()) && !fault.found(); ++i) {
    const Op& op = nth(program.ops, i);
    const bool computes = op.lane == Lane::kCompute;
    fault.enter(i);
    if (!computes && !(op.dead_before.empty() && op.dead_after.empty())) {
      fault.fail("frees memory, which is for the compute lane");
    }
    for (const BufferId b : op.dead_before) transit.forget(b);
    chunks.enter(op);
    if (op.chunk < 0 && op.kind != OpKind::kCommit) {
      transit.enter(op);
      if (computes) touch_grads(op, slotted, touches, chunks);
    }
    for (const BufferId b : op.dead_after) transit.forget(b);
  }
  chunks.at_end();
  return fault.text();
}

}  // namespace sluice
