// Lion over a span (update_span.hpp) with one moment, m (Chen et al. 2023, algorithm 2).
//
//   g = scale * grad;  u = sign(b1 m + (1-b1) g);  p = p (1 - lr wd) - lr u;  m = b2 m + (1-b2) g
//
// The sign of a NaN and of a number of magnitude below 1.2e-38 is 0. So threads that flush
// subnormals to zero get the same signs as a GPU.
#pragma once

#include "kernels/cpu/update/update_span.hpp"

namespace sluice {

// The hyper-parameters of an update, computed in double and rounded once.
struct LionConstants {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float minus_lr;
  float decay;  // 1 - lr * weight_decay
};

[[nodiscard]] LionConstants lion_constants(const UpdateSpan& span);

// Runs on the compute threads (parallel.hpp). Throws Error as check_span().
void lion(const UpdateSpan& span);

}  // namespace sluice
