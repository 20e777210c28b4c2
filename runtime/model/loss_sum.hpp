// The sum of a micro-batch's losses. A GPU may still be computing the losses; only the conversion
// to double waits for the GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace sluice {

class LossSum {
 public:
  LossSum(double number) : number_(number) {}  // NOLINT(google-explicit-constructor)
  // `losses`: fp32 of each row, on a GPU; or on the meta device, then there is no sum.
  explicit LossSum(at::Tensor losses) : losses_(std::move(losses)) {}

  // Waits for the GPU.
  operator double() const;  // NOLINT(google-explicit-constructor)
  // Writes the sum to `total`, fp64 without dimensions on the GPU. Does not wait.
  void write_to(at::Tensor total) const;

 private:
  double number_ = 0;
  at::Tensor losses_;
};

}  // namespace sluice
