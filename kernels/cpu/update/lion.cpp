#include "kernels/cpu/update/lion.hpp"

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {

LionConstants lion_constants(const UpdateSpan& span) {
  return {.grad_scale = static_cast<float>(span.grad_scale),
          .beta1 = static_cast<float>(span.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - span.beta1),
          .beta2 = static_cast<float>(span.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - span.beta2),
          .minus_lr = static_cast<float>(-span.lr),
          .decay = static_cast<float>(1.0 - span.lr * span.weight_decay)};
}

void lion(const UpdateSpan& span) {
  check_span(span, "lion", 1);
  const LionConstants constants = lion_constants(span);
  const KernelTable& table = kernels();
  parallel_for(span.n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    table.lion(span, constants, begin, end - begin);
  });
}

}  // namespace sluice
