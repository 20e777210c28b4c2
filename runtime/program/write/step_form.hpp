// The forms of a step's program, and the writer of one form.
#pragma once

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

enum class StepKind { kTrain, kEvaluate, kDecode };

// The loss head's scratch: a slot of the arena, which exists all the time, or memory that the head
// takes while it runs.
enum class HeadScratch { kSlot, kTaken };

struct StepForm {
  StepKind kind;
  HeadScratch scratch = HeadScratch::kSlot;
};

// REQUIRES: check_shape(shape).
[[nodiscard]] Program write_step(const StepShape& shape, StepForm form);

}  // namespace sluice
