// Update of a group whose states live on the device, after NormAndScale or in the backward. Compute
// lane. The chunks of states off-device are TierStore's.
#pragma once

#include <vector>

#include "runtime/engine/device_access.hpp"
#include "runtime/engine/ops/step_parts.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class UpdateOps {
 public:
  explicit UpdateOps(const StepParts& parts);

  // `decision`: in device memory; null: norm_and_scale() has decided. Does nothing if the step is
  // only diagnosed, or if the host has decided to throw the step away. If the GPU decides, update()
  // enqueues the kernel, and the kernel changes nothing in a step that is thrown away. On a GPU,
  // consecutive updates behind the norm are enqueued together with the last one.
  void update(const Op& op, const cuda::StepClip* decision);

 private:
  const EngineSetup& setup_;
  const StepRun& run_;
  GroupStore& store_;
  StepCarry& carry_;
  const UpdateKernel kernel_;
  std::vector<UpdateSpan> updates_;  // not yet run
};

}  // namespace sluice
