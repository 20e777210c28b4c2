#include "runtime/run/memory/torch_snapshot.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "runtime/observe/pickle_writer.hpp"

namespace sluice {
namespace {

class Snapshot {
 public:
  Snapshot(const TierMemories& tiers, const Program& program) : tiers_(tiers), program_(program) {}

  std::string make() {
    out_.begin_dict();
    out_.text("segments");
    out_.begin_list();
    for (int tier = 0; tier < kTierCount; ++tier) add_segments(tier);
    out_.end_list();
    out_.text("device_traces");
    out_.begin_list();
    for (const TierMemory& tier : tiers_) {
      out_.next();
      out_.begin_list();
      for (const MemoryChange& change : tier.changes) add_change(tier, change);
      out_.end_list();
    }
    out_.end_list();
    out_.end_dict();
    return out_.take();
  }

 private:
  void put(std::string_view key, std::int64_t value) {
    out_.text(key);
    out_.number(value);
  }
  void put(std::string_view key, std::string_view value) {
    out_.text(key);
    out_.text(value);
  }

  // A viewer shows "<filename>:<line>:<name>".
  void frame(std::string_view filename, std::int64_t line, std::string_view name) {
    out_.next();
    out_.begin_dict();
    put("filename", filename);
    put("line", line);
    put("name", name);
    out_.end_dict();
  }
  void op_frame(std::string_view event, OpId op) {
    if (op < 0) return;
    frame(std::string(event) + " at operation", op, describe(nth(program_.ops, op)));
  }
  // The innermost frame first.
  void frames(const MemoryRange& range, const BufferLife* life) {
    out_.text("frames");
    out_.begin_list();
    frame(range.array.empty() ? "buffer" : range.array, 0, range.name);
    if (life != nullptr) {
      op_frame("born", life->born);
      op_frame("dies", life->dies);
    }
    frame("tag", 0, name_of(range.tag));
    out_.end_list();
  }

  void block(std::int64_t address, std::int64_t bytes, const MemoryRange* range,
             const BufferLife* life) {
    if (bytes <= 0) return;
    out_.next();
    out_.begin_dict();
    put("address", address);
    put("size", bytes);
    put("requested_size", bytes);
    put("state", range == nullptr ? "inactive" : "active_allocated");
    if (range != nullptr) {
      frames(*range, life);
    } else {
      out_.text("frames");
      out_.begin_list();
      out_.end_list();
    }
    out_.end_dict();
  }

  struct Part {
    const MemoryRange* range = nullptr;
    const BufferLife* life = nullptr;
  };

  void segment(int device, const MemorySegment& segment, std::vector<Part> parts) {
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.range->address < b.range->address; });
    std::int64_t active = 0;
    for (const Part& part : parts) active += part.range->bytes;
    out_.next();
    out_.begin_dict();
    put("device", device);
    put("address", segment.address);
    put("total_size", segment.bytes);
    put("allocated_size", active);
    put("active_size", active);
    put("requested_size", active);
    put("stream", 0);
    put("segment_type", "large");
    out_.text("segment_pool_id");
    out_.zero_pair();
    out_.text("is_expandable");
    out_.boolean(false);
    out_.text("frames");
    out_.begin_list();
    frame("segment", 0, segment.name);
    out_.end_list();
    out_.text("blocks");
    out_.begin_list();
    std::int64_t at = segment.address;
    for (const Part& part : parts) {
      block(at, part.range->address - at, nullptr, nullptr);
      block(part.range->address, part.range->bytes, part.range, part.life);
      at = part.range->address + part.range->bytes;
    }
    block(at, segment.address + segment.bytes - at, nullptr, nullptr);
    out_.end_list();
    out_.end_dict();
  }

  void add_segments(int tier) {
    const TierMemory& memory = nth(tiers_, tier);
    for (const MemorySegment& one : memory.segments) {
      std::vector<Part> parts;
      for (const MemoryRange& range : one.held) parts.push_back({&range, nullptr});
      if (one.address == memory.arena_address) {
        for (const BufferLife& life : memory.lives) {
          if (life.in_arena && life.dies < 0) parts.push_back({&life.range, &life});
        }
      }
      segment(tier, one, std::move(parts));
    }
    for (const BufferLife& life : memory.lives) {
      if (life.in_arena || life.dies >= 0) continue;
      segment(tier, {life.range.name, life.range.address, life.range.bytes, {}},
              {{&life.range, &life}});
    }
  }

  void event(std::string_view action, const BufferLife& life, std::int64_t at_us) {
    out_.next();
    out_.begin_dict();
    put("action", action);
    put("addr", life.range.address);
    put("size", life.range.bytes);
    put("stream", 0);
    put("time_us", at_us);
    frames(life.range, &life);
    out_.end_dict();
  }

  // A buffer outside the arena is an allocation of its own.
  void add_change(const TierMemory& tier, const MemoryChange& change) {
    const BufferLife& life = tier.lives[change.life];
    if (change.born) {
      if (!life.in_arena) event("segment_alloc", life, change.at_us);
      event("alloc", life, change.at_us);
    } else {
      event("free_requested", life, change.at_us);
      event("free_completed", life, change.at_us);
      if (!life.in_arena) event("segment_free", life, change.at_us);
    }
  }

  const TierMemories& tiers_;
  const Program& program_;
  PickleWriter out_;
};

}  // namespace

std::string torch_snapshot(const TierMemories& tiers, const Program& program) {
  return Snapshot(tiers, program).make();
}

}  // namespace sluice
