// Computes a program's peak bytes of a rank on each tier, by tag. Pure.
#pragma once

#include <array>

#include "runtime/program/program.hpp"

namespace sluice {

using TagBytes = std::array<std::int64_t, kTagCount>;

// The tag of an operation's workspace. A workspace below 0 takes off activations that a split
// backward keeps for its weight products: both buffers count them at that operation.
[[nodiscard]] inline Tag tag_of_workspace(std::int64_t bytes) {
  return bytes < 0 ? Tag::kActivations : Tag::kWorkspace;
}

struct MemoryReport {
  std::int64_t persistent = 0;    // lives as long as the run
  std::int64_t arena = 0;         // slots, allocated once
  std::int64_t dynamic_peak = 0;  // peak of the dynamic buffers outside the arena
  // Of dynamic_peak, small blocks (Buffer::small): their own peak, because large blocks cannot use
  // their segments.
  std::int64_t small_peak = 0;
  OpId peak_op = -1;  // the operation at the peak
  TagBytes by_tag{};  // at peak_op; slots count while they live

  // Allocated bytes at the peak of the step.
  [[nodiscard]] std::int64_t peak() const { return persistent + arena + dynamic_peak; }
};

[[nodiscard]] MemoryReport add_up(const Program& program, Tier tier = Tier::kDevice);

// Host bytes of the training program itself, of the programs beside it (evaluation and deferred
// updates) and of the executor's bookkeeping for each operation. Large with many small chunks.
[[nodiscard]] std::int64_t host_bytes_of(const Program& train);

// Bytes of memory.host that a run of the training program takes: the peak in whole pages, and the
// programs. 0 if nothing leaves the device.
[[nodiscard]] std::int64_t host_need(const Program& train);

}  // namespace sluice
