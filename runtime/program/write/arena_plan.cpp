#include "runtime/program/write/arena_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

// A buffer's lifetime in half-steps: 2i is before operation i runs, 2i + 1 is after.
struct Life {
  int begin = -1;
  int end = -1;  // exclusive
};

std::vector<Life> find_lives(const Program& program) {
  std::vector<Life> lives(program.buffers.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const int now = 2 * static_cast<int>(i);
    const Op& op = program.ops[i];
    for (const BufferId b : op.dead_before) nth(lives, b).end = now;
    for (const BufferId b : op.live) nth(lives, b).begin = now;
    for (const BufferId b : op.dead_after) nth(lives, b).end = now + 1;
  }
  return lives;
}

// A buffer with its lifetime, and its size rounded up to the arena's alignment.
struct Slot {
  std::size_t buffer = 0;
  Life life;
  std::int64_t bytes = 0;
  bool large = false;  // at least a sixteenth of the largest
  std::int64_t offset = 0;
};

// Finds the slots whose lifetimes overlap a slot's own: the slots alive at its birth, and the slots
// born before its death. A checkpoint every kEvery slots stores the slots alive at that birth. A
// program with millions of overlaps therefore needs no list of all overlaps.
class Meetings {
 public:
  // `slots` are sorted by birth.
  explicit Meetings(const std::vector<Slot>& slots) : died_(slots.size()) {
    for (const Slot& slot : slots) lives_.push_back(slot.life);
    std::vector<std::uint32_t> alive;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (i % kEvery == 0) {
        std::erase_if(alive, [&](std::uint32_t a) { return lives_[a].end <= lives_[i].begin; });
        begins_.push_back(checkpoints_.size());
        checkpoints_.insert(checkpoints_.end(), alive.begin(), alive.end());
      }
      alive.push_back(static_cast<std::uint32_t>(i));
      const auto later = std::upper_bound(
          lives_.begin() + static_cast<std::ptrdiff_t>(i), lives_.end(), lives_[i].end - 1,
          [](int end, const Life& life) { return end < life.begin; });
      died_[i] = static_cast<std::size_t>(later - lives_.begin());
    }
    begins_.push_back(checkpoints_.size());
  }

  // Calls `meets` with slots, and with whether their lifetimes overlap that of slot i.
  template <class F>
  void each(std::size_t i, const F& meets) const {
    const std::size_t checkpoint = i / kEvery;
    const int birth = lives_[i].begin;
    for (std::size_t c = begins_[checkpoint]; c < begins_[checkpoint + 1]; ++c) {
      meets(checkpoints_[c], lives_[checkpoints_[c]].end > birth);
    }
    for (std::size_t other = checkpoint * kEvery; other < i; ++other) {
      meets(other, lives_[other].end > birth);
    }
    for (std::size_t other = i + 1; other < died_[i]; ++other) meets(other, true);
  }

 private:
  static constexpr std::size_t kEvery = 64;

  std::vector<Life> lives_;                 // by slot
  std::vector<std::size_t> died_;           // by slot: the first slot born after its death
  std::vector<std::uint32_t> checkpoints_;  // slots alive at the birth of every kEvery-th slot
  std::vector<std::size_t> begins_;         // begin of each checkpoint, then the end
};

// The distinct offsets given so far, each with the largest end of the neighbours at that offset. A
// neighbour is a slot whose lifetime overlaps. A repetitive program has few distinct offsets. The
// loops over neighbours and offsets are most of a search's time, so they have no branch that a
// processor guesses wrong: a neighbour without an offset counts as one of no bytes at kNone.
class Offsets {
 public:
  explicit Offsets(std::size_t slots) : places_(slots) {}

  void begin() { std::fill(ends_.begin(), ends_.end(), 0); }
  // Adds a neighbour. `meets` false: the slot is none.
  void add(std::size_t slot, bool meets) {
    const Place& place = places_[slot];
    std::int64_t& end = ends_[meets ? place.id : kNone];
    end = std::max(end, meets ? place.end : 0);
  }
  // The lowest offset at which `bytes` overlap no neighbour.
  [[nodiscard]] std::int64_t lowest(std::int64_t bytes) const {
    std::int64_t offset = 0;
    for (const auto& [at, id] : by_offset_) {
      if (offset + bytes <= at) break;
      offset = std::max(offset, ends_[id]);
    }
    return offset;
  }
  void give(std::size_t slot, std::int64_t offset, std::int64_t bytes) {
    const auto place = std::ranges::lower_bound(by_offset_, offset, {}, &Given::offset);
    if (place != by_offset_.end() && place->offset == offset) {
      places_[slot] = {offset + bytes, place->id};
      return;
    }
    places_[slot] = {offset + bytes, ends_.size()};
    by_offset_.insert(place, {offset, ends_.size()});
    ends_.push_back(0);
  }

 private:
  static constexpr std::size_t kNone = 0;

  struct Place {
    std::int64_t end = 0;
    std::size_t id = kNone;  // of the offset
  };
  struct Given {
    std::int64_t offset = 0;
    std::size_t id = kNone;
  };
  std::vector<Place> places_;          // by slot
  std::vector<std::int64_t> ends_{0};  // by id: largest end of this round's neighbours
  std::vector<Given> by_offset_;
};

// Places each slot, in the given order, at the lowest offset that is free for its whole lifetime.
// Returns the largest end. If the result is not below `enough`, some slots are not placed.
std::int64_t place(std::vector<Slot>& slots, const std::vector<std::size_t>& order,
                   const Meetings& meetings, std::int64_t enough) {
  Offsets offsets(slots.size());
  std::int64_t top = 0;
  for (const std::size_t i : order) {
    offsets.begin();
    meetings.each(i, [&](std::size_t other, bool meets) { offsets.add(other, meets); });
    Slot& slot = slots[i];
    slot.offset = offsets.lowest(slot.bytes);
    offsets.give(i, slot.offset, slot.bytes);
    top = std::max(top, slot.offset + slot.bytes);
    if (top >= enough) break;
  }
  return top;
}

// The largest number of bytes alive at one time. No placement can be smaller.
std::int64_t lower_bound(const std::vector<Slot>& slots) {
  std::vector<std::pair<int, std::int64_t>> changes;
  for (const Slot& slot : slots) {
    changes.emplace_back(slot.life.begin, slot.bytes);
    changes.emplace_back(slot.life.end, -slot.bytes);
  }
  std::sort(changes.begin(), changes.end());  // at equal times, deaths first
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const auto& [when, bytes] : changes) most = std::max(most, now += bytes);
  return most;
}

// The slots of a tier, by birth.
std::vector<Slot> slots_of(const Program& program, const std::vector<Life>& lives, Tier tier,
                           std::int64_t align) {
  std::vector<Slot> slots;
  std::int64_t largest = 0;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (!program.buffers[b].in_arena || program.buffers[b].tier != tier) continue;
    check(lives[b].begin >= 0 && lives[b].end > lives[b].begin, "a slot without a life");
    slots.push_back({b, lives[b], round_up(program.buffers[b].bytes, align)});
    largest = std::max(largest, slots.back().bytes);
  }
  for (Slot& slot : slots) slot.large = slot.bytes >= largest / 16;
  std::stable_sort(slots.begin(), slots.end(),
                   [](const Slot& a, const Slot& b) { return a.life.begin < b.life.begin; });
  return slots;
}

// Tries a few orders and keeps the smallest arena. Returns its bytes.
std::int64_t assign_tier(Program& program, const std::vector<Life>& lives, Tier tier,
                         std::int64_t align) {
  std::vector<Slot> slots = slots_of(program, lives, tier, align);
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
      // Small slots among large ones would make holes that no large one fits.
      [](const Slot& a, const Slot& b) {
        if (a.large != b.large) return a.large;
        return a.large ? a.life.begin < b.life.begin : a.bytes > b.bytes;
      },
  };
  const Meetings meetings(slots);
  std::vector<std::size_t> by_buffer(slots.size());
  std::iota(by_buffer.begin(), by_buffer.end(), std::size_t{0});
  std::sort(by_buffer.begin(), by_buffer.end(),
            [&](std::size_t a, std::size_t b) { return slots[a].buffer < slots[b].buffer; });
  std::vector<Slot> best;
  std::int64_t smallest = 0;
  for (const Before before : orders) {
    std::vector<std::size_t> order = by_buffer;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return before(slots[a], slots[b]); });
    const std::int64_t enough = best.empty() ? std::numeric_limits<std::int64_t>::max() : smallest;
    const std::int64_t bytes = place(slots, order, meetings, enough);
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
