#include "runtime/model/loss_sum.hpp"

#include <ATen/ops/sum.h>

namespace sluice {

LossSum::operator double() const {
  if (!losses_.defined()) return number_;
  return at::sum(losses_, c10::ScalarType::Double).item<double>();
}

void LossSum::write_to(at::Tensor total) const {
  if (!losses_.defined()) {
    total.fill_(number_);
    return;
  }
  at::sum_out(total, losses_, at::OptionalIntArrayRef(), /*keepdim=*/false,
              c10::ScalarType::Double);
}

}  // namespace sluice
