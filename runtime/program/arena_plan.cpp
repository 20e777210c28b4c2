#include "runtime/program/arena_plan.hpp"

#include <algorithm>

#include "kernels/base/bytes.hpp"
#include "kernels/base/error.hpp"

namespace sluice {
namespace {

// A buffer's life in half-steps: operation i has 2i (before it runs) and 2i + 1 (after).
struct Life {
  int begin = -1;
  int end = -1;  // exclusive
};

std::vector<Life> find_lives(const Program& program) {
  std::vector<Life> lives(program.buffers.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const int now = 2 * static_cast<int>(i);
    const Op& op = program.ops[i];
    for (const BufferId b : op.dead_before) lives[static_cast<std::size_t>(b)].end = now;
    for (const BufferId b : op.live) lives[static_cast<std::size_t>(b)].begin = now;
    for (const BufferId b : op.dead_after) lives[static_cast<std::size_t>(b)].end = now + 1;
  }
  return lives;
}

}  // namespace

void assign_arena(Program& program) {
  const std::vector<Life> lives = find_lives(program);
  std::vector<std::size_t> order;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (!program.buffers[b].in_arena) continue;
    check(lives[b].begin >= 0 && lives[b].end > lives[b].begin, "a slot without a life");
    order.push_back(b);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return program.buffers[a].bytes > program.buffers[b].bytes;
  });
  std::vector<std::size_t> placed;  // by offset
  program.arena_bytes = 0;
  for (const std::size_t b : order) {
    Buffer& buffer = program.buffers[b];
    const std::int64_t bytes = round_up(buffer.bytes, kArenaAlignBytes);
    std::int64_t offset = 0;
    for (const std::size_t other : placed) {
      if (lives[other].begin >= lives[b].end || lives[b].begin >= lives[other].end) continue;
      const Buffer& there = program.buffers[other];
      if (offset + bytes <= there.arena_offset) break;
      offset = std::max(offset, there.arena_offset + round_up(there.bytes, kArenaAlignBytes));
    }
    buffer.arena_offset = offset;
    program.arena_bytes = std::max(program.arena_bytes, offset + bytes);
    const auto position = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [&](std::int64_t at, std::size_t o) { return at < program.buffers[o].arena_offset; });
    placed.insert(position, b);
  }
}

}  // namespace sluice
