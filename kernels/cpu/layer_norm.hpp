// LayerNorm (Ba et al. 2016) over rows of `hidden` elements, and sums over rows, which the backward
// of a linear layer and of a norm needs. Statistics, products and sums are fp32 or wider for every
// dtype; results are rounded once.
//
// On the compute threads. Bits do not depend on instruction set or threads. Sums over rows have a
// fixed order: kSumRows rows one after another, then the blocks of rows one after another.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// Rows that are summed before their sum is added to the total. Short chains keep fp32 sums of many
// rows exact to about 1e-7.
inline constexpr std::int64_t kSumRows = 32;

struct LayerNormArgs {
  const void* x = nullptr;       // [rows, hidden] of dtype
  const void* weight = nullptr;  // [hidden] of dtype
  const void* bias = nullptr;    // [hidden] of dtype; forward only
  float* mean = nullptr;         // [rows]; forward writes it unless null, backward reads it
  float* rstd = nullptr;         // [rows]; forward writes it unless null, backward reads it
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  double eps = 1e-5;
};

// y = (x - mean) * rstd * weight + bias. y may be x.
void layer_norm_forward(const LayerNormArgs& args, void* y);

// dx = residual + (gradient of x, given the gradient dy of the output). `residual` may be null. All
// are [rows, hidden] of dtype; dx may be dy or residual.
void layer_norm_input_gradient(const LayerNormArgs& args, void* dx, const void* dy,
                               const void* residual);

// Gradients of weight and bias, [hidden] fp32 each. Replaces them, or adds with accumulate_*.
void layer_norm_weight_gradient(const LayerNormArgs& args, float* d_weight, float* d_bias,
                                const void* dy, bool accumulate_weight, bool accumulate_bias);

// total[c] = sum of x[r, c] over rows r, or += with `accumulate`. x: [rows, columns] of dtype.
void column_sum(float* total, const void* x, DType dtype, std::int64_t rows, std::int64_t columns,
                bool accumulate);

}  // namespace sluice
