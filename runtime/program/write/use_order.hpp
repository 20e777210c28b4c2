// The order in which a rank's program runs its units: by micro-batch, by unit, or by the slots of
// its pipeline stage. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.hpp"
#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/program_builder.hpp"

namespace sluice {

// The uses [begin, end) of a slot. In training, a chunk with only the loss head has an empty
// forward slot, because the loss head runs in the backward slot.
struct SlotUses {
  Slot slot;
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct UseOrder {
  std::vector<Use> uses;
  std::vector<SlotUses> slots;  // without a pipeline: none
  int last_backwards = 0;       // number of uses after the last forward or loss head
};

// `training`: forward and backward of all micro-batches; otherwise forward and loss of one.
[[nodiscard]] UseOrder order_uses(const StepShape& shape, bool training);

[[nodiscard]] inline bool is_pipelined(const StepShape& shape) { return shape.pipeline.stages > 1; }
[[nodiscard]] PipelineRun pipeline_run(const StepShape& shape);

// Units of a chunk: [chunk_begin, chunk_end).
[[nodiscard]] int chunk_begin(const StepShape& shape, int chunk);
[[nodiscard]] int chunk_end(const StepShape& shape, int chunk);
[[nodiscard]] bool begins_chunk(const StepShape& shape, int unit);
[[nodiscard]] bool ends_chunk(const StepShape& shape, int unit);
[[nodiscard]] inline bool is_loss_head(const StepShape& shape, int unit) {
  return shape.ends_model() && unit + 1 == static_cast<int>(shape.units.size());
}
// False: the unit takes tokens.
[[nodiscard]] inline bool has_input(const StepShape& shape, int unit) {
  return unit > 0 || !shape.begins_model();
}
// Bytes of the unit's input for one micro-batch. REQUIRES: has_input.
[[nodiscard]] std::int64_t input_bytes(const StepShape& shape, int unit);

// NVMe extents per unit whose input goes to NVMe: one per micro-batch (extent = micro-batch), or
// one for all micro-batches.
[[nodiscard]] int input_extents(const StepShape& shape);

}  // namespace sluice
