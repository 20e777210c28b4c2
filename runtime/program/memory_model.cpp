#include "runtime/program/memory_model.hpp"

namespace sluice {

MemoryReport add_up(const Program& program, Tier tier) {
  MemoryReport report;
  const bool device = tier == Tier::kDevice;
  report.arena = device ? program.arena_bytes : tier == Tier::kHost ? program.host_arena_bytes : 0;
  TagBytes now{};
  for (const Persistent& p : program.persistent) {
    if (p.tier != tier) continue;
    report.persistent += p.bytes;
    now[static_cast<std::size_t>(p.tag)] += p.bytes;
  }
  report.by_tag = now;
  std::int64_t dynamic = 0;
  std::int64_t slots = 0;       // in use
  std::int64_t peak_slots = 0;  // at peak_op: the fullest of equal heights is shown
  const auto change = [&](BufferId id, int sign) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    if (buffer.tier != tier) return;
    now[static_cast<std::size_t>(buffer.tag)] += sign * buffer.bytes;
    (buffer.in_arena ? slots : dynamic) += sign * buffer.bytes;
  };
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    for (const BufferId b : op.dead_before) change(b, -1);
    for (const BufferId b : op.live) change(b, +1);
    const std::int64_t workspace = device ? op.workspace_bytes : 0;
    const std::int64_t height = dynamic + workspace;
    if (report.peak_op < 0 || height > report.dynamic_peak ||
        (height == report.dynamic_peak && slots > peak_slots)) {
      report.dynamic_peak = height;
      peak_slots = slots;
      report.peak_op = static_cast<OpId>(i);
      report.by_tag = now;
      report.by_tag[static_cast<std::size_t>(Tag::kWorkspace)] += workspace;
    }
    for (const BufferId b : op.dead_after) change(b, -1);
  }
  return report;
}

}  // namespace sluice
