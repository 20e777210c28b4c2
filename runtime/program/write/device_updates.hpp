// Writes the updates of groups whose states are on the device: behind the norm, or in the backward
// where no norm clips the step and the group's gradients pass (StepShape::updates_in_backward).
// Pure.
#pragma once

#include <vector>

#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/grad_flow.hpp"
#include "runtime/program/write/program_builder.hpp"

namespace sluice {

class DeviceUpdates {
 public:
  // `grads` outlives the object.
  DeviceUpdates(ProgramBuilder& builder, const StepShape& shape, GradFlow& grads);

  // Called before a backward and before the norm, with the groups whose gradients are complete
  // since the last call. Where gradients are sent, updates the groups of the call before: their
  // reductions had a backward to complete.
  void follow(std::vector<GradFlow::Summed> summed);
  // Called after the norm. Updates the other groups.
  void finish(OpId norm);

 private:
  ProgramBuilder& builder_;
  const StepShape& shape_;
  GradFlow& grads_;
  std::vector<GradFlow::Summed> reducing_;  // not yet updated
  std::vector<bool> updated_;               // by group
};

}  // namespace sluice
