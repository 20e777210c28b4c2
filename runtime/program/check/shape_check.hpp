// Checks a shape before a program is written from it. Pure.
#pragma once

#include "runtime/program/step_shape.hpp"

namespace sluice {

// Throws Error if numbers contradict each other, and ConfigError if configuration settings do.
void check_shape(const StepShape& shape);

}  // namespace sluice
