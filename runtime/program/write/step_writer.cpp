#include "runtime/program/write/step_writer.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/program/check/shape_check.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/early_updates.hpp"
#include "runtime/program/write/param_window.hpp"
#include "runtime/program/write/program_builder.hpp"
#include "runtime/program/write/step_form.hpp"
#include "runtime/program/write/update_flow.hpp"

namespace sluice {
namespace {

// So many that further micro-batches take no more memory.
int few_micro_batches(const StepShape& shape) {
  if (shape.layer_major || shape.pipeline.schedule == PipelineSchedule::kGpipe) {
    return shape.micro_batches;
  }
  return std::min(shape.micro_batches, 4 * shape.pipeline.stages);
}

Program write_with(const StepShape& shape, StepKind kind, HeadScratch scratch) {
  return write_step(shape, {kind, scratch});
}

std::int64_t device_peak(const Program& program) { return add_up(program, Tier::kDevice).peak(); }

// Kept tensors leave the device while the forward goes on.
bool kept_tensors_leave(const StepShape& shape) {
  return shape.placement.activations != Tier::kDevice && !shape.recompute;
}

// Whether the head's scratch finds a hole in the memory that the step has by plan. Kept tensors
// that leave the device free memory on both sides of those that have not left. The largest hole may
// then be half of the free memory, so the scratch must fit twice. `taken`: the program of `shape`
// with HeadScratch::kTaken.
bool finds_hole(StepShape shape, StepKind kind, const Program& taken) {
  if (!kept_tensors_leave(shape)) return true;
  shape.units.back().memory.scratch *= 2;
  return device_peak(write_with(shape, kind, HeadScratch::kTaken)) <= device_peak(taken);
}

// On a GPU the head's scratch has many rows. If the arena has no other slot of that size, the
// scratch is allocated only while the head runs, so backward temporaries can reuse its memory. At
// equal peaks this form wins, because the free block also serves large temporaries. On the host the
// scratch is small, and a slot costs no pages that the system has to make again.
Program write_smaller(const StepShape& shape, StepKind kind) {
  if (!shape.on_gpu) return write_with(shape, kind, HeadScratch::kSlot);
  // An evaluation beside training has the arena of the training.
  const StepKind deciding = shape.frozen ? StepKind::kEvaluate : StepKind::kTrain;
  if (kind != deciding && !kept_tensors_leave(shape)) {
    return write_with(shape, kind, HeadScratch::kTaken);
  }
  StepShape few = shape;
  few.micro_batches = few_micro_batches(shape);
  Program taken = write_with(few, deciding, HeadScratch::kTaken);
  Program slot = write_with(few, deciding, HeadScratch::kSlot);
  const bool takes = device_peak(taken) <= device_peak(slot) && finds_hole(few, deciding, taken);
  if (kind == deciding && few.micro_batches == shape.micro_batches) {
    return std::move(takes ? taken : slot);
  }
  return write_with(shape, kind, takes ? HeadScratch::kTaken : HeadScratch::kSlot);
}

// Second places on the host have the room that the budget leaves. The operations of speculative
// updates need some of it, so the room shrinks until all fits.
Program write_within_budget(StepShape shape) {
  Placement& placement = shape.placement;
  placement.speculate = false;
  Program plain = write_smaller(shape, StepKind::kTrain);
  placement.speculate = true;
  placement.speculation_room_bytes = shape.host_budget_bytes - host_need(plain);
  while (placement.speculation_room_bytes > 0) {
    Program program = write_smaller(shape, StepKind::kTrain);
    const std::int64_t missing = host_need(program) - shape.host_budget_bytes;
    if (missing <= 0) return program;
    std::int64_t& room = placement.speculation_room_bytes;
    room = std::min(room, program.states.second_bytes(Tier::kHost)) - missing;
  }
  return plain;
}

}  // namespace

Program write_train_step(const StepShape& shape) {
  check_shape(shape);
  check(!shape.frozen, "what is trained is not frozen");
  const bool limited = has_second_places_on_host(shape) && shape.host_budget_bytes > 0;
  return limited ? write_within_budget(shape) : write_smaller(shape, StepKind::kTrain);
}

Program write_eval_step(const StepShape& shape) {
  check_shape(shape);
  return write_smaller(shape, StepKind::kEvaluate);
}

Program write_decode_step(const StepShape& shape) {
  check_shape(shape);
  return write_step(shape, {StepKind::kDecode});
}

Program write_update_step(const StepShape& shape) {
  check_shape(shape);
  ProgramBuilder builder;
  UpdateFlow updates(builder, shape, true);
  Op end{.kind = OpKind::kRelease};
  for (const int g : groups_by_first_use(shape)) {
    updates.advance(g);
    end.waits.insert(end.waits.end(), updates.ready(g).begin(), updates.ready(g).end());
  }
  builder.emit(std::move(end));
  builder.program().ops.shrink_to_fit();
  return std::move(builder.program());
}

}  // namespace sluice
