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

// The uses [begin, end) of a slot; none where a chunk is the loss head alone, whose forward is part
// of its backward.
struct SlotUses {
  Slot slot;
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct UseOrder {
  std::vector<Use> uses;
  std::vector<SlotUses> slots;  // without a pipeline: none
  int last_backwards = 0;       // uses after the last forward or loss head
};

// `training`: all micro-batches, forward and backward; else one, forward and loss.
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
// Else it takes tokens.
[[nodiscard]] inline bool has_input(const StepShape& shape, int unit) {
  return unit > 0 || !shape.begins_model();
}
// Bytes of its input, one micro-batch. REQUIRES: has_input.
[[nodiscard]] std::int64_t input_bytes(const StepShape& shape, int unit);

// On NVMe, of each unit that sends its input there: one a micro-batch (extent = micro-batch), or
// one for all.
[[nodiscard]] int input_extents(const StepShape& shape);

}  // namespace sluice
