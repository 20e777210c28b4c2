#include "kernels/cpu/update/adamw.hpp"

#include <cmath>
#include <string>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {

AdamWConstants adamw_constants(const UpdateSpan& span) {
  if (span.step < 1) {
    throw Error("AdamW: step " + std::to_string(span.step) +
                " has no bias correction; count updates from 1");
  }
  const double step = static_cast<double>(span.step);
  const double bias1 = span.bias_correction ? 1.0 - std::pow(span.beta1, step) : 1.0;
  const double bias2 = span.bias_correction ? 1.0 - std::pow(span.beta2, step) : 1.0;
  const double decoupled_decay = span.decoupled ? span.weight_decay : 0.0;
  return {.grad_scale = static_cast<float>(span.grad_scale),
          .beta1 = static_cast<float>(span.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - span.beta1),
          .beta2 = static_cast<float>(span.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - span.beta2),
          .inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(bias2)),
          .eps = static_cast<float>(span.eps),
          .minus_step_size = static_cast<float>(-span.lr / bias1),
          .decay = static_cast<float>(1.0 - span.lr * decoupled_decay),
          .l2 = static_cast<float>(span.decoupled ? 0.0 : span.weight_decay)};
}

void adamw(const UpdateSpan& span) {
  check_span(span, "adamw", 2);
  const AdamWConstants constants = adamw_constants(span);
  const KernelTable& table = kernels();
  parallel_for(span.n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    table.adamw(span, constants, begin, end - begin);
  });
}

}  // namespace sluice
