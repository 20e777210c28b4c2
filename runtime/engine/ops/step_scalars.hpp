// The numbers of a step that change from step to step, in memory of a GPU for recorded kernels
// (kernels/cuda/step_scalars.hpp). Exists where steps are launched as graphs; elsewhere kernels
// have the numbers by value.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/engine/ops/step_parts.hpp"

namespace sluice::cuda {
struct StepScalars;
}  // namespace sluice::cuda

namespace sluice {

class BatchOps;

class StepScalars {
 public:
  // `batches` knows the factor of the loss and outlives the object.
  StepScalars(const StepParts& parts, BatchOps& batches);

  void begin_program() { written_ = false; }
  // Before each compute operation: the first of a training program enqueues one copy, behind the
  // kernels of the step before. Does not wait.
  void write();
  // One address for all steps; null where no step is launched as graphs.
  [[nodiscard]] const cuda::StepScalars* on_device() const;

 private:
  const EngineSetup& setup_;
  const StepRun& run_;
  BatchOps& batches_;
  at::Tensor device_;     // bytes
  bool written_ = false;  // in the program that runs
};

}  // namespace sluice
