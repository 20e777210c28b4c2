#include "runtime/plan/phase_memory.hpp"

#include <optional>
#include <vector>

#include "base/index.hpp"

namespace sluice {
namespace {

std::optional<Phase> phase_of(const Op& op) {
  if (op.lane != Lane::kCompute) return std::nullopt;
  switch (op.kind) {
    case OpKind::kForward:
      return Phase::kForward;
    case OpKind::kLossHead:
      return op.save ? Phase::kBackward : Phase::kForward;
    case OpKind::kBackward:
    case OpKind::kRoundGrads:
      return Phase::kBackward;
    case OpKind::kAddGrads:
    case OpKind::kNormAndScale:
      return Phase::kUpdate;
    case OpKind::kUpdate:
      return op.in_backward ? Phase::kBackward : Phase::kUpdate;
    default:
      return std::nullopt;
  }
}

// Phases by operation: its own, else the phase of the next operation with one, else the last phase.
std::vector<Phase> phases_of(const Program& program) {
  std::vector<Phase> phases(program.ops.size(), Phase::kForward);
  std::optional<Phase> next;
  for (std::size_t i = program.ops.size(); i-- > 0;) {
    if (const auto own = phase_of(program.ops[i])) next = own;
    phases[i] = next.value_or(Phase::kUpdate);
  }
  return phases;
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kLoad:
      return "load";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      return "update";
  }
  return "";
}

PhasePeaks memory_by_phase(const Program& program, Tier tier) {
  const bool device = tier == Tier::kDevice;
  PhasePeaks phases{};
  std::int64_t now_bytes = device                ? program.arena_bytes
                           : tier == Tier::kHost ? program.host_arena_bytes
                                                 : 0;
  TagBytes now{};
  for (const StateRow& p : program.states.rows) {
    if (p.tier != tier) continue;
    now_bytes += p.tier_bytes();
    nth(now, p.tag) += p.tier_bytes();
  }
  for (PhaseMemory& phase : phases) phase = {now_bytes, now};
  const auto change = [&](BufferId id, int sign) {
    const Buffer& buffer = nth(program.buffers, id);
    if (buffer.tier != tier) return;
    nth(now, buffer.tag) += sign * buffer.bytes;
    if (!buffer.in_arena) now_bytes += sign * buffer.bytes;
  };
  const std::vector<Phase> phase_of_op = phases_of(program);
  std::array<bool, static_cast<std::size_t>(kPhaseCount)> seen{};
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    for (const BufferId b : op.dead_before) change(b, -1);
    for (const BufferId b : op.live) change(b, +1);
    const std::int64_t workspace = device ? op.workspace_bytes : 0;
    const auto p = static_cast<std::size_t>(phase_of_op[i]);
    if (!seen[p] || now_bytes + workspace > phases[p].peak) {
      seen[p] = true;
      phases[p] = {now_bytes + workspace, now};
      nth(phases[p].by_tag, tag_of_workspace(workspace)) += workspace;
    }
    for (const BufferId b : op.dead_after) change(b, -1);
  }
  return phases;
}

}  // namespace sluice
