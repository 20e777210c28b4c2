// Gradients that take the place of activations (GroupShape::passing_gradient_bytes).
#pragma once

#include "runtime/program/step_shape.hpp"

namespace sluice {

// Decides for each group. Gradients of a GPU's blocks pass, where the backward of a step meets each
// group once, nothing is reduced, the optimizer is on the device, and the peak falls by more
// than the gaps that passing gradients leave. Gradients below 1 MiB do not: they would take
// segments of their own from libtorch's allocator. Tables and heads do not: when their turn comes,
// no gap between other tensors is as large as they are.
// Failpoint plan.passing_gradients, poisoned: all gradients of blocks that may pass do.
// REQUIRES: the shape has its units, stage and placement.
void pass_gradients(StepShape& shape);

}  // namespace sluice
