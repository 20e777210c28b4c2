// Input and result of one training step. Value types.
#pragma once

#include <cmath>
#include <cstdint>

namespace sluice {

struct StepTimes {     // milliseconds of the executing thread, or of a GPU (OpClock)
  double forward = 0;  // in training with the loss head's gradients
  double backward = 0;
  // The executing thread's waits for other lanes (collectives, copies, host, NVMe), and the
  // operations Gather, AddReplicas and Meet of the compute lane.
  double comm = 0;
  double optimizer = 0;  // off-device: time of the host lane, beside the other times
  double io = 0;         // some NVMe transfer was under way, beside the other times
  double data = 0;
};

struct StepInput {
  std::int64_t step = 1;  // chooses the data and the dropout masks
  double lr = 0;
  std::int64_t update = 0;  // number of the update for bias correction, from 1; 0: as step
  double loss_scale = 1;
  double vote = 0;  // any number; the result has the largest of all ranks, so that ranks can agree
};

struct StepResult {
  double loss = 0;       // mean over the global batch's tokens, before the update
  double grad_norm = 0;  // before clipping, unscaled, each parameter counted once
  double vote = 0;       // largest vote of all ranks
  StepTimes times;
  // False: loss or norm is not finite on some rank, and nothing was updated, except shards with
  // finite gradients of groups that are updated in the backward (Op::in_backward).
  [[nodiscard]] bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
  // The loss is finite and the gradients are not. A smaller loss scale may help.
  [[nodiscard]] bool overflowed() const { return std::isfinite(loss) && !std::isfinite(grad_norm); }
};

// Steps with speculative updates, by result.
struct SpeculationCounts {
  std::int64_t kept = 0;
  std::int64_t redone = 0;  // the step was clipped or thrown away
  std::int64_t chunks = 0;  // of this rank, updated early in steps that were kept
};

}  // namespace sluice
