// Adds up a program: the peak bytes of a rank on each tier, by tag. Pure.
#pragma once

#include <array>

#include "runtime/program/program.hpp"

namespace sluice {

using TagBytes = std::array<std::int64_t, kTagCount>;

struct MemoryReport {
  std::int64_t persistent = 0;    // lives as long as the run
  std::int64_t arena = 0;         // slots, allocated once
  std::int64_t dynamic_peak = 0;  // highest of what comes and goes outside the arena
  OpId peak_op = -1;              // where
  TagBytes by_tag{};              // at that operation; slots count while they live

  // Bytes the allocator hands out at the highest point of the step.
  [[nodiscard]] std::int64_t peak() const { return persistent + arena + dynamic_peak; }
};

[[nodiscard]] MemoryReport add_up(const Program& program, Tier tier = Tier::kDevice);

// What a training program itself takes of the host's memory, with the programs beside it
// (evaluation and updates left over: parts of it) and what an executor keeps for each operation.
// Large where many small chunks are moved.
[[nodiscard]] std::int64_t host_bytes_of(const Program& train);

}  // namespace sluice
