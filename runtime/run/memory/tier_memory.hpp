// The memory of one tier over a step: every long-lived array of the state table, and every buffer
// of the step program from its birth to its death. Addresses are made up; they keep the places of
// rows in their blocks and of slots in the arena. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/program/executor.hpp"
#include "runtime/program/model/memory_model.hpp"

namespace sluice {

// A range of memory with one purpose.
struct MemoryRange {
  std::string name;   // "h.0.exp_avg", "unit 3, micro-batch 0"
  std::string array;  // of the state table: "optimizer state"; empty: a buffer of the program
  Tag tag = Tag::kParameters;
  std::int64_t address = 0;
  std::int64_t bytes = 0;
};

// One allocation of the tier.
struct MemorySegment {
  std::string name;
  std::int64_t address = 0;
  std::int64_t bytes = 0;
  std::vector<MemoryRange> held;  // for the whole step, by address
};

// A buffer of the program, or the workspace of an operation.
struct BufferLife {
  MemoryRange range;
  bool in_arena = false;
  OpId born = -1;
  OpId dies = -1;  // -1: lives on after the step
};

struct MemoryChange {
  std::size_t life = 0;  // index in TierMemory::lives
  bool born = false;
  std::int64_t at_us = 0;  // since the step began
};

struct TierMemory {
  std::vector<MemorySegment> segments;
  std::vector<BufferLife> lives;
  std::vector<MemoryChange> changes;  // in the order of the program; at_us never falls
  std::int64_t arena_address = 0;     // of the segment "arena"; 0: none
};

// `group_names`: by group of the state table. `timings`: of the step; empty times if none.
[[nodiscard]] TierMemory tier_memory(const Program& program, std::span<const OpTiming> timings,
                                     std::span<const std::string> group_names, Tier tier);

}  // namespace sluice
