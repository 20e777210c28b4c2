// The numbers of a step that change from step to step, in memory of a GPU for recorded kernels
// (kernels/cuda/step_scalars.hpp). Exists where steps are launched as graphs; elsewhere kernels
// have the numbers by value.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cuda/step_scalars.hpp"
#include "runtime/engine/ops/step_parts.hpp"

namespace sluice {

class StepScalars {
 public:
  explicit StepScalars(const StepParts& parts);

  void begin_program() { written_ = false; }
  // After a batch was read: enqueues one copy for each training program, behind the kernels of the
  // step before. Does not wait.
  void write();
  // One address for all steps; null where no step is launched as graphs.
  [[nodiscard]] const cuda::StepScalars* on_device() const;

 private:
  const EngineSetup& setup_;
  const StepRun& run_;
  at::Tensor device_;     // bytes
  bool written_ = false;  // in the program that runs
};

}  // namespace sluice
