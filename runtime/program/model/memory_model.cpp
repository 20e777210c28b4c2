#include "runtime/program/model/memory_model.hpp"

#include <algorithm>
#include <initializer_list>

#include "base/bytes.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

// A ticket, a timing, and two lists of a collective's buffers.
constexpr std::int64_t kExecutorBytesPerOp = 16 + 40 + 48;

// Heap bytes of an allocation: 8 bytes of overhead, a multiple of 16, at least 32.
std::int64_t heap_bytes(std::size_t payload) {
  if (payload == 0) return 0;
  return std::max<std::int64_t>(32, round_up(static_cast<std::int64_t>(payload) + 8, 16));
}

std::int64_t bytes_of(const Op& op) {
  std::int64_t bytes = sizeof op;
  for (const auto* list :
       {&op.reads, &op.writes, &op.opens, &op.waits, &op.dead_before, &op.live, &op.dead_after}) {
    bytes += heap_bytes(list->size() * sizeof(int));
  }
  return bytes;
}

}  // namespace

MemoryReport add_up(const Program& program, Tier tier) {
  MemoryReport report;
  const bool device = tier == Tier::kDevice;
  report.arena = device ? program.arena_bytes : tier == Tier::kHost ? program.host_arena_bytes : 0;
  TagBytes now{};
  for (const StateRow& p : program.states.rows) {
    if (p.tier != tier) continue;
    report.persistent += p.tier_bytes();
    nth(now, p.tag) += p.tier_bytes();
  }
  report.by_tag = now;
  std::int64_t dynamic = 0;
  std::int64_t small = 0;  // outside the arena, besides `dynamic`
  std::int64_t small_at_peak = 0;
  std::int64_t slots = 0;       // in use
  std::int64_t peak_slots = 0;  // at peak_op; equal peaks: the one with most slot bytes
  const auto change = [&](BufferId id, int sign) {
    const Buffer& buffer = nth(program.buffers, id);
    if (buffer.tier != tier) return;
    nth(now, buffer.tag) += sign * buffer.bytes;
    (buffer.in_arena ? slots : dynamic) += sign * (buffer.bytes - buffer.small);
    small += sign * buffer.small;
  };
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    for (const BufferId b : op.dead_before) change(b, -1);
    for (const BufferId b : op.live) change(b, +1);
    const std::int64_t workspace = device ? op.workspace_bytes : 0;
    const std::int64_t height = dynamic + workspace;
    report.small_peak = std::max(report.small_peak, small);
    if (report.peak_op < 0 || height > report.dynamic_peak ||
        (height == report.dynamic_peak && slots > peak_slots)) {
      report.dynamic_peak = height;
      peak_slots = slots;
      small_at_peak = small;
      report.peak_op = static_cast<OpId>(i);
      report.by_tag = now;
      nth(report.by_tag, tag_of_workspace(workspace)) += workspace;
    }
    for (const BufferId b : op.dead_after) change(b, -1);
  }
  report.dynamic_peak += report.small_peak;
  nth(report.by_tag, Tag::kActivations) += report.small_peak - small_at_peak;
  return report;
}

std::int64_t host_bytes_of(const Program& train) {
  std::int64_t bytes = 0;
  bool before_backward = true;  // the other programs repeat these operations
  for (const Op& op : train.ops) {
    before_backward = before_backward && op.kind != OpKind::kBackward;
    bytes += (before_backward ? 2 : 1) * bytes_of(op) + kExecutorBytesPerOp;
  }
  for (const auto& pieces : train.buckets) {
    bytes += static_cast<std::int64_t>(sizeof(std::vector<BucketPiece>)) +
             heap_bytes(pieces.size() * sizeof(BucketPiece));
  }
  bytes += static_cast<std::int64_t>(train.buffers.size() * sizeof(Buffer));
  // All three programs list all chunks.
  return bytes + 3 * static_cast<std::int64_t>(train.chunks.size() * sizeof(Chunk));
}

// HostPool ends every block at a page.
std::int64_t host_need(const Program& train) {
  constexpr std::int64_t kPage = 4096;
  const std::int64_t arena = train.host_arena_bytes;
  const std::int64_t peak = add_up(train, Tier::kHost).peak() + train.states.page_end_bytes() +
                            round_up(arena, kPage) - arena;
  const bool leaves = peak > 0 || add_up(train, Tier::kNvme).peak() > 0;
  return leaves ? peak + host_bytes_of(train) : 0;
}

}  // namespace sluice
