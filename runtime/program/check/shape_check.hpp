// What a shape must be before a program can be written from it. Pure.
#pragma once

#include "runtime/program/step_shape.hpp"

namespace sluice {

// Throws Error where numbers contradict each other, ConfigError where a configuration asks for what
// has no meaning together.
void check_shape(const StepShape& shape);

}  // namespace sluice
