// Bounds of a configuration's memory and time, from shapes only, without a program. Pure.
#pragma once

#include <span>
#include <vector>

#include "runtime/plan/plan_text.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

// Lower bound of a rank's memory: states, and on the device the tensors kept for backward.
[[nodiscard]] TierBytes memory_floor(const StepShape& shape);

// Chunks in which the states off the device pass through the host in a step.
[[nodiscard]] std::int64_t off_device_chunks(const StepShape& shape);

// Most flights of the rank at one time.
[[nodiscard]] int most_in_flight(const StepShape& shape);

// Lower bound of the step time of one pipeline. `stages` and `rates`: by stage.
[[nodiscard]] double time_floor(std::span<const StepPlan> stages, std::span<const Rates> rates);

}  // namespace sluice
