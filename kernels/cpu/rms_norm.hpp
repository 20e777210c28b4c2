// RMSNorm (Zhang and Sennrich 2019) over rows of `hidden` elements. Statistics, products and sums
// are fp32 or wider for every dtype; results are rounded once. On the compute threads. Bits do not
// depend on instruction set or threads. Sums over rows have the fixed order of layer_norm.hpp.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

struct RmsNormArgs {
  const void* x = nullptr;       // [rows, hidden] of dtype
  const void* weight = nullptr;  // [hidden] of dtype
  float* rstd = nullptr;         // [rows]; forward writes it unless null, backward reads it
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  double eps = 1e-5;
};

// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). y may be x. All three functions throw
// Error if a buffer is null.
void rms_norm_forward(const RmsNormArgs& args, void* y);

// dx = residual + (gradient of x, given the gradient dy of the output). `residual` may be null. All
// are [rows, hidden] of dtype; dx may be dy or residual.
void rms_norm_input_gradient(const RmsNormArgs& args, void* dx, const void* dy,
                             const void* residual);

// Gradient of the weight, [hidden] fp32. Replaces it, or adds with `accumulate`.
void rms_norm_weight_gradient(const RmsNormArgs& args, float* d_weight, const void* dy,
                              bool accumulate);

}  // namespace sluice
