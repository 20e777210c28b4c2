// Program writers for data-parallel steps, ZeRO stages 0-3. Pure functions.
//
// Gradients: each bucket is reduce-scattered as soon as backward has filled it, each micro-batch,
// and added to an fp32 shard; so the sum is (over micro-batches) of (over ranks) on every stage,
// and stages are bit-identical. Stage 0 gathers the summed gradients, the others gather updated
// parameters at the start of the next step, under its forward. Stage 2 keeps full gradients of a
// group only from backward to the end of their reduction; stage 3 does the same with parameters, by
// a window over the sequence of uses: while a use runs, the groups it and the next `prefetch_units`
// uses read are gathered or on their way; a group is released once it leaves the window (ZeRO,
// section 5; no trace is taken at run time).
#pragma once

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// One optimizer step: all micro-batches, norm, update.
[[nodiscard]] Program write_train_step(const StepShape& shape);
// Forward and loss of one micro-batch.
[[nodiscard]] Program write_eval_step(const StepShape& shape);

}  // namespace sluice
