// The memory of a tier at every instant of a step, from a program and its schedule. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

struct MemoryPoint {
  double at_s = 0;         // since the step began; holds until the next point
  std::int64_t total = 0;  // persistent, arena and temporary bytes
  TagBytes by_tag{};       // arena slots count only while they live: the sum may be less
};

struct MemoryCurve {
  std::vector<MemoryPoint> points;  // at_s never falls; several may share an instant
  bool thinned = false;
};

// The highest point is add_up(program, tier).peak(), with the same tags. Memory of an operation of
// another lane lives from its issue, at the end of compute's operation before. `most_points` (at
// least 2): in a longer curve each slice of time keeps only its highest and its last point.
// REQUIRES: `timeline` is by operation of this program.
[[nodiscard]] MemoryCurve memory_curve(const Program& program,
                                       const std::vector<OpInterval>& timeline, Tier tier,
                                       std::size_t most_points = 8000);

}  // namespace sluice
