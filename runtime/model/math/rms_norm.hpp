// RMSNorm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + eps) * weight over the last dimension, in
// fp32, rounded to x's type before the weight as Hugging Face's llama does.
#pragma once

#include "runtime/model/unit.hpp"

namespace sluice {

// Differentiable. x: [..., H], weight: [H] -> [..., H].
[[nodiscard]] at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// 1 / sqrt(mean(x^2) + eps), fp32 [..., 1].
[[nodiscard]] at::Tensor rms_norm_rstd(const at::Tensor& x, double eps);

// Without autograd: dx [N, H] of x's type; the weight's gradient goes to `weight_grad`.
struct RmsNormBackward {
  const at::Tensor& x_NH;
  const at::Tensor& weight_H;
  const at::Tensor& rstd_N1;
  const at::Tensor& dy_NH;
};
[[nodiscard]] at::Tensor rms_norm_backward(const RmsNormBackward& given, GradTarget weight_grad);

}  // namespace sluice
