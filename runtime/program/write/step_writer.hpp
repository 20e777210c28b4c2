// Program writers for data-parallel steps, ZeRO stages 0-3. Pure functions.
//
// In each micro-batch, each bucket is reduce-scattered as soon as backward has filled the bucket,
// and added to an fp32 shard. Every stage sums over ranks first, then over micro-batches, so all
// stages are bit-identical (grad_flow.hpp). Stage 0 gathers the summed gradients. The other stages
// gather updated parameters during the next step's forward. Stage 3 gathers by a window over the
// sequence of uses (param_window.hpp; ZeRO, section 5), without a trace at run time. In layer-major
// order a unit runs all micro-batches before the next unit runs. Its parameters are gathered once
// for all of them, but every micro-batch's activations are kept. Results are bit-identical.
#pragma once

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// One optimizer step: all micro-batches, norm, update.
[[nodiscard]] Program write_train_step(const StepShape& shape);
// Forward and loss of one micro-batch.
[[nodiscard]] Program write_eval_step(const StepShape& shape);
// The decode program: the first positions of a sequence, or the next position. Returns the logits
// of the last position. Units keep earlier positions in cache slots (UnitMemory::cache), which live
// as long as the program and share bytes with no other slot. The next run finds the caches if no
// other program ran in the arena in between. REQUIRES: shape.units are profiled with caches.
[[nodiscard]] Program write_decode_step(const StepShape& shape);
// Only the deferred updates that the next training step would start with. Run before parameters
// are read outside a step.
[[nodiscard]] Program write_update_step(const StepShape& shape);

}  // namespace sluice
