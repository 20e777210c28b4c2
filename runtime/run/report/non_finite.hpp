// Why a step's loss or gradient norm is not finite.
#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace sluice {

class Communicator;
class Engine;
class Watchdog;
struct StepResult;

// The error of a step that was not finite and updated nothing. Runs the step again, then looks at
// all weights. `updated`: an earlier step of this process has updated the weights. Collective over
// `comm`, the world.
[[nodiscard]] TrainingError non_finite_error(Engine& engine, Communicator& comm, Watchdog& watchdog,
                                             std::int64_t step, const StepResult& result,
                                             bool updated);

}  // namespace sluice
