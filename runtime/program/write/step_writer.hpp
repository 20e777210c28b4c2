// Program writers for data-parallel steps, ZeRO stages 0-3. Pure functions.
//
// Gradients: each bucket is reduce-scattered as soon as backward has filled it, each micro-batch,
// and added to an fp32 shard; so the sum is (over micro-batches) of (over ranks) on every stage,
// and stages are bit-identical (grad_flow.hpp). Stage 0 gathers the summed gradients, the others
// gather updated parameters at the start of the next step, under its forward. Stage 3 gathers by a
// window over the sequence of uses (param_window.hpp; ZeRO, section 5; no trace is taken at run
// time). In layer-major order a unit runs all micro-batches before the next one does: it is
// gathered once for them, at the price of keeping every micro-batch's activations; bit-identical.
#pragma once

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// One optimizer step: all micro-batches, norm, update.
[[nodiscard]] Program write_train_step(const StepShape& shape);
// Forward and loss of one micro-batch.
[[nodiscard]] Program write_eval_step(const StepShape& shape);
// Positions of one sequence, the first ones or the one after the last, and the logits of the last
// of them. Units find what they remember of earlier positions in slots that live as long as the
// program: no other slot shares their bytes, so what one run leaves there the next one finds, if no
// other program ran in the arena in between. shape.units are those of a sequence run in parts
// (UnitMemory::cache). `persistent` is what a rank holds beside.
[[nodiscard]] Program write_decode_step(const StepShape& shape);
// The updates that the next training step would begin with, alone: before parameters are looked at.
[[nodiscard]] Program write_update_step(const StepShape& shape);

}  // namespace sluice
