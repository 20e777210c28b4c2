// RMSNorm (Zhang and Sennrich 2019) over rows of `hidden` elements. Statistics, products and sums
// in fp32 or wider whatever the dtype, results rounded once. On the compute threads; bits do not
// depend on instruction set or threads; sums over rows have the fixed shape of layer_norm.hpp.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

struct RmsNormArgs {
  const void* x = nullptr;       // [rows, hidden] of dtype
  const void* weight = nullptr;  // [hidden] of dtype
  float* rstd = nullptr;         // [rows]; written by forward (null: not kept), read by backward
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  double eps = 1e-5;
};

// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). y may be x. All three throw Error where
// a buffer is missing.
void rms_norm_forward(const RmsNormArgs& args, void* y);

// dx = residual + the gradient by x of the norm whose output's gradient is dy; residual null: none.
// [rows, hidden] of dtype each; dx may be dy or residual.
void rms_norm_input_gradient(const RmsNormArgs& args, void* dx, const void* dy,
                             const void* residual);

// The weight's gradient, [hidden] fp32, replaced or added to.
void rms_norm_weight_gradient(const RmsNormArgs& args, float* d_weight, const void* dy,
                              bool accumulate);

}  // namespace sluice
