// Checks a shape before a program is written from it. Pure.
#pragma once

#include "runtime/program/step_shape.hpp"

namespace sluice {

// Throws Error if numbers contradict each other, ConfigError if settings of a configuration do.
void check_shape(const StepShape& shape);

}  // namespace sluice
