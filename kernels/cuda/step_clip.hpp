// A step's decision in device memory: the gradient norm, the factor of its gradients, and whether
// the update happens. Updates that are enqueued behind the decision read it there, so the host
// waits for nothing in between. The functions are the host's too, with the same bits: double, each
// operation rounded once.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/device_body.hpp"
#include "kernels/cuda/launch.hpp"

namespace sluice::cuda {

struct ClipInput {
  double most = 0;  // train.clip; 0: any norm is kept
  double loss_scale = 1;
  double loss_divisor = 1;
};

struct StepClip {
  double loss_sum = 0;   // over the micro-batches
  double squares = 0;    // of all gradients, with the loss scale in them
  float grad_scale = 0;  // clip coefficient / loss scale
  int updates = 0;       // 0: loss or norm is not finite, and nothing is updated
};

SLUICE_HOST_DEVICE inline double norm_of(double squares, const ClipInput& in) {
#ifdef SLUICE_DEVICE_CODE
  return sqrt(squares) / in.loss_scale;
#else
  return std::sqrt(squares) / in.loss_scale;
#endif
}

// The factor of the gradients, at most 1. 1 without a clip and for a norm that is NaN.
SLUICE_HOST_DEVICE inline double clip_coefficient(double norm, const ClipInput& in) {
  if (!(in.most > 0)) return 1;
  const double coefficient = in.most / (norm + 1e-6);
  return coefficient < 1 ? coefficient : 1;
}

// `sums` and `losses` are added up in their order.
SLUICE_HOST_DEVICE inline StepClip decide_step(const double* sums, std::int64_t count,
                                               const double* losses, std::int64_t micro_batches,
                                               const ClipInput& in) {
  StepClip step;
  for (std::int64_t i = 0; i < micro_batches; ++i) step.loss_sum += losses[i];
  for (std::int64_t i = 0; i < count; ++i) step.squares += sums[i];
  const double loss = step.loss_sum / in.loss_divisor;
  const double norm = norm_of(step.squares, in);
  step.grad_scale = static_cast<float>(clip_coefficient(norm, in) / in.loss_scale);
  step.updates = loss - loss == 0 && norm - norm == 0 ? 1 : 0;
  return step;
}

// decide_step() by one kernel. Pointers are device memory.
struct StepSums {
  const double* sums = nullptr;
  std::int64_t count = 0;
  const double* losses = nullptr;
  std::int64_t micro_batches = 0;
};
void launch_step_clip(const StepSums& of, const ClipInput& in, StepClip* out, StreamRef stream);

}  // namespace sluice::cuda
