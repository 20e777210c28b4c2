// SGD with momentum over a span (update_span.hpp) with one moment, m: torch.optim.SGD without
// dampening and Nesterov's form. Weight decay is part of the gradient.
//
//   g = scale * grad + wd p;  m = momentum m + g;  p -= lr m
#pragma once

#include "kernels/cpu/update/update_span.hpp"

namespace sluice {

// The hyper-parameters of an update, rounded once.
struct SgdConstants {
  float grad_scale, weight_decay, momentum, minus_lr;
};

[[nodiscard]] SgdConstants sgd_constants(const UpdateSpan& span);

// Runs on the compute threads (parallel.hpp). Throws Error as check_span().
void sgd(const UpdateSpan& span);

}  // namespace sluice
