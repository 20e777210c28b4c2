#include "kernels/cpu/update/sgd.hpp"

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {

SgdConstants sgd_constants(const UpdateSpan& span) {
  return {.grad_scale = static_cast<float>(span.grad_scale),
          .weight_decay = static_cast<float>(span.weight_decay),
          .momentum = static_cast<float>(span.momentum),
          .minus_lr = static_cast<float>(-span.lr)};
}

void sgd(const UpdateSpan& span) {
  check_span(span, "sgd", 1);
  const SgdConstants constants = sgd_constants(span);
  const KernelTable& table = kernels();
  parallel_for(span.n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    table.sgd(span, constants, begin, end - begin);
  });
}

}  // namespace sluice
