#include "runtime/program/arena_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

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

// Slots, each with a life and a size rounded up to the arena's alignment.
struct Slot {
  std::size_t buffer = 0;
  Life life;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;
};

// By slot, the others whose lives meet its own. Few are alive at a time, so a sweep over births and
// deaths is nearly linear where comparing all with all would take seconds for a large model.
std::vector<std::vector<std::size_t>> find_neighbours(const std::vector<Slot>& slots) {
  std::vector<std::size_t> by_birth(slots.size());
  std::iota(by_birth.begin(), by_birth.end(), std::size_t{0});
  std::sort(by_birth.begin(), by_birth.end(), [&](std::size_t a, std::size_t b) {
    return slots[a].life.begin < slots[b].life.begin;
  });
  std::vector<std::vector<std::size_t>> neighbours(slots.size());
  std::vector<std::size_t> alive;
  for (const std::size_t i : by_birth) {
    std::erase_if(alive, [&](std::size_t a) { return slots[a].life.end <= slots[i].life.begin; });
    for (const std::size_t a : alive) {
      neighbours[a].push_back(i);
      neighbours[i].push_back(a);
    }
    alive.push_back(i);
  }
  return neighbours;
}

// Puts each slot, in the order given, at the lowest offset that is free for its whole life. Returns
// the end of the highest.
std::int64_t place(std::vector<Slot>& slots, const std::vector<std::size_t>& order,
                   const std::vector<std::vector<std::size_t>>& neighbours) {
  for (Slot& slot : slots) slot.offset = -1;
  std::int64_t top = 0;
  std::vector<const Slot*> placed;
  for (const std::size_t i : order) {
    placed.clear();
    for (const std::size_t n : neighbours[i]) {
      if (slots[n].offset >= 0) placed.push_back(&slots[n]);
    }
    std::sort(placed.begin(), placed.end(),
              [](const Slot* a, const Slot* b) { return a->offset < b->offset; });
    Slot& slot = slots[i];
    std::int64_t offset = 0;
    for (const Slot* there : placed) {
      if (offset + slot.bytes <= there->offset) break;
      offset = std::max(offset, there->offset + there->bytes);
    }
    slot.offset = offset;
    top = std::max(top, slot.offset + slot.bytes);
  }
  return top;
}

// The most bytes that are alive at once: no placing can be smaller.
std::int64_t lower_bound(const std::vector<Slot>& slots) {
  std::vector<std::pair<int, std::int64_t>> changes;
  for (const Slot& slot : slots) {
    changes.emplace_back(slot.life.begin, slot.bytes);
    changes.emplace_back(slot.life.end, -slot.bytes);
  }
  std::sort(changes.begin(), changes.end());  // of one instant, deaths first
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const auto& [when, bytes] : changes) most = std::max(most, now += bytes);
  return most;
}

// Tries a few orders and keeps the smallest arena. Returns its bytes.
std::int64_t assign_tier(Program& program, const std::vector<Life>& lives, Tier tier,
                         std::int64_t align) {
  std::vector<Slot> slots;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (!program.buffers[b].in_arena || program.buffers[b].tier != tier) continue;
    check(lives[b].begin >= 0 && lives[b].end > lives[b].begin, "a slot without a life");
    slots.push_back({b, lives[b], round_up(program.buffers[b].bytes, align)});
  }
  const std::int64_t bound = lower_bound(slots);
  using Before = bool (*)(const Slot&, const Slot&);
  const Before orders[] = {
      [](const Slot& a, const Slot& b) { return a.bytes > b.bytes; },
      [](const Slot& a, const Slot& b) {
        return a.life.end - a.life.begin > b.life.end - b.life.begin;
      },
      [](const Slot& a, const Slot& b) {
        return a.bytes * (a.life.end - a.life.begin) > b.bytes * (b.life.end - b.life.begin);
      },
      [](const Slot& a, const Slot& b) { return a.life.begin < b.life.begin; },
      [](const Slot& a, const Slot& b) { return a.life.end > b.life.end; },
  };
  const std::vector<std::vector<std::size_t>> neighbours = find_neighbours(slots);
  std::vector<Slot> best;
  std::int64_t smallest = 0;
  for (const Before before : orders) {
    std::vector<std::size_t> order(slots.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return before(slots[a], slots[b]); });
    const std::int64_t bytes = place(slots, order, neighbours);
    if (best.empty() || bytes < smallest) {
      best = slots;
      smallest = bytes;
    }
    if (smallest == bound) break;
  }
  for (const Slot& slot : best) program.buffers[slot.buffer].arena_offset = slot.offset;
  return smallest;
}

}  // namespace

void assign_arena(Program& program) {
  const std::vector<Life> lives = find_lives(program);
  program.arena_bytes = assign_tier(program, lives, Tier::kDevice, kArenaAlignBytes);
  program.host_arena_bytes = assign_tier(program, lives, Tier::kHost, kHostAlignBytes);
}

}  // namespace sluice
