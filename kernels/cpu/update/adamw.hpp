// AdamW over a span (update_span.hpp) with two moments, m and v.
//
//   g = scale * grad;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g;  p *= 1 - lr wd
//   p -= lr / (1-b1^step) * m / (sqrt(v) / sqrt(1-b2^step) + eps)
//
// Not decoupled (Adam with L2 regularisation): g = scale * grad + wd p, and p is not multiplied.
// Without bias correction, 1-b1^step and 1-b2^step are 1.
#pragma once

#include "kernels/cpu/update/update_span.hpp"

namespace sluice {

// The hyper-parameters of an update, computed in double and rounded once.
struct AdamWConstants {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^step); 1 without bias correction
  float eps;
  float minus_step_size;  // -lr / (1 - beta1^step); -lr without bias correction
  float decay;            // 1 - lr * weight_decay; 1 if not decoupled
  float l2;               // weight_decay if not decoupled; 0: nothing is added to the gradient
};

// Throws Error on step < 1.
[[nodiscard]] AdamWConstants adamw_constants(const UpdateSpan& span);

// Runs on the compute threads (parallel.hpp). Throws Error as adamw_constants() and check_span().
void adamw(const UpdateSpan& span);

}  // namespace sluice
