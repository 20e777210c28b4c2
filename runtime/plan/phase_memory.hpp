// A program's memory by phase of the step. Pure.
#pragma once

#include <array>
#include <string_view>

#include "runtime/program/model/memory_model.hpp"

namespace sluice {

// kLoad: before the first step, with all persistent memory.
enum class Phase { kLoad, kForward, kBackward, kUpdate };
inline constexpr int kPhaseCount = static_cast<int>(Phase::kUpdate) + 1;

[[nodiscard]] std::string_view name_of(Phase phase);

struct PhaseMemory {
  std::int64_t peak = 0;  // persistent, arena and temporary bytes
  TagBytes by_tag{};      // at the peak; arena slots count only while they live
};

using PhasePeaks = std::array<PhaseMemory, static_cast<std::size_t>(kPhaseCount)>;

// The loss head runs forward and backward at once and counts as backward. An operation issued
// between two operations of the compute lane belongs to the phase of the later one.
[[nodiscard]] PhasePeaks memory_by_phase(const Program& program, Tier tier);

}  // namespace sluice
