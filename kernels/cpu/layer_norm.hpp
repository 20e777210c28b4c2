// LayerNorm (Ba et al. 2016) over rows of `hidden` elements, and sums over rows: what the backward
// of a linear layer and of a norm need beside GEMMs. Statistics, products and sums in fp32 or
// wider whatever the dtype, results rounded once.
//
// On the compute threads; bits do not depend on instruction set or threads. Sums over rows have a
// fixed shape: kSumRows rows one after another, blocks of rows one after another.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// Rows added up before their sum goes to the total: short chains keep fp32 sums of many rows exact
// to about 1e-7.
inline constexpr std::int64_t kSumRows = 32;

struct LayerNormArgs {
  const void* x = nullptr;       // [rows, hidden] of dtype
  const void* weight = nullptr;  // [hidden] of dtype
  const void* bias = nullptr;    // [hidden] of dtype; forward only
  float* mean = nullptr;         // [rows]; written by forward (null: not kept), read by backward
  float* rstd = nullptr;         // [rows]; likewise
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  double eps = 1e-5;
};

// y = (x - mean) * rstd * weight + bias. y may be x.
void layer_norm_forward(const LayerNormArgs& args, void* y);

// dx = residual + the gradient by x of the norm whose output's gradient is dy; residual null: none.
// [rows, hidden] of dtype each; dx may be dy or residual.
void layer_norm_input_gradient(const LayerNormArgs& args, void* dx, const void* dy,
                               const void* residual);

// Gradients of weight and bias, [hidden] fp32 each, replaced or added to.
void layer_norm_weight_gradient(const LayerNormArgs& args, float* d_weight, float* d_bias,
                                const void* dy, bool accumulate_weight, bool accumulate_bias);

// total[c] = sum over rows of x[r, c], or += where `accumulate`. x: [rows, columns] of dtype.
void column_sum(float* total, const void* x, DType dtype, std::int64_t rows, std::int64_t columns,
                bool accumulate);

}  // namespace sluice
