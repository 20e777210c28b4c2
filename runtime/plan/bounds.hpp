// Bounds of what a configuration needs, from its shapes alone: no program is written. Pure.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "runtime/plan/step_profile.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

using TierBytes = std::array<std::int64_t, static_cast<std::size_t>(kTierCount)>;

// What a rank cannot do with less of: states, and on the device what forward leaves for backward.
[[nodiscard]] TierBytes memory_floor(const StepShape& shape);

// The most micro-batches, times chunks, whose activations the rank holds at once.
[[nodiscard]] int most_in_flight(const StepShape& shape);

// No step of these stages, of one pipeline, is shorter. By stage: shapes and rates.
[[nodiscard]] double time_floor(std::span<const StepPlan> stages, std::span<const Rates> rates);

}  // namespace sluice
