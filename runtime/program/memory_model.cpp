#include "runtime/program/memory_model.hpp"

namespace sluice {

MemoryReport add_up(const Program& program) {
  MemoryReport report;
  report.arena = program.arena_bytes;
  TagBytes now{};
  for (const Persistent& p : program.persistent) {
    report.persistent += p.bytes;
    now[static_cast<std::size_t>(p.tag)] += p.bytes;
  }
  report.by_tag = now;
  std::int64_t dynamic = 0;
  const auto change = [&](BufferId id, int sign) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    now[static_cast<std::size_t>(buffer.tag)] += sign * buffer.bytes;
    if (!buffer.in_arena) dynamic += sign * buffer.bytes;
  };
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    for (const BufferId b : op.dead_before) change(b, -1);
    for (const BufferId b : op.live) change(b, +1);
    if (dynamic + op.workspace_bytes > report.dynamic_peak || report.peak_op < 0) {
      report.dynamic_peak = dynamic + op.workspace_bytes;
      report.peak_op = static_cast<OpId>(i);
      report.by_tag = now;
      report.by_tag[static_cast<std::size_t>(Tag::kWorkspace)] += op.workspace_bytes;
    }
    for (const BufferId b : op.dead_after) change(b, -1);
  }
  return report;
}

}  // namespace sluice
