// The program of a plan, and the steps whose program would fill the memory of a machine.
// Thread-safe.
#pragma once

#include <cstdint>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// The number as a program counts micro-batches. Throws ConfigError above 2^31 - 1.
[[nodiscard]] int countable_micro_batches(std::int64_t micro_batches);

// Throws ConfigError if the shape's program would have more than 2^24 operations. Writes only the
// programs of few micro-batches: each further one adds as many operations.
void refuse_long_program(const StepShape& shape);

// The training program of a shape. Throws ConfigError if the program would be too long. Failpoint
// plan.stage.S gives a message of pipeline stage S the wrong micro-batch.
[[nodiscard]] Program planned_program(const StepShape& shape);

}  // namespace sluice
