// Gradients that take the place of activations (GroupShape::passing_gradient_bytes).
#pragma once

#include "runtime/program/step_shape.hpp"

namespace sluice {

// Chooses the groups with GroupShape::rounds_gradients: those of blocks, where
// may_round_gradients() holds and a group's backwards follow each other, as below. Tables and heads
// keep fp32: a slot of their size would take more than their rounded gradients save. REQUIRES: as
// pass_gradients(). Must be called before pass_gradients().
void round_gradients(StepShape& shape);

// Decides for each group. Gradients of a GPU's blocks pass where may_pass_gradients() holds and the
// backwards of a group follow each other: in a step of one micro-batch, or in layer order. None
// pass unless the peak falls by more than the gaps that they leave. Gradients below 1 MiB keep
// their row: they would take segments of their own from libtorch's allocator. So do those of tables
// and heads: when their turn comes, no gap between other tensors is as large as they are.
// Groups whose gradients pass are updated in the backward where StepShape::updates_in_backward says
// that they may be, and where the peak falls by more than the gaps once more: each update ends a
// CUDA graph. Then tables and heads pass too: a head's gradients are freed before the first block's
// backward, and a table's exist when nothing else does.
// Failpoint plan.passing_gradients, poisoned: gradients pass, and groups are updated in the
// backward, wherever they may. REQUIRES: the shape has its units, stage and placement.
void pass_gradients(StepShape& shape);

}  // namespace sluice
