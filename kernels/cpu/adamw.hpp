// AdamW over one range of fp32 master weights and moments: one pass that reads the gradient as it
// is, updates p, m, v in place and writes the weights in the training dtype.
//
//   g = scale * grad;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g;  p *= 1 - lr wd
//   p -= lr / (1-b1^step) * m / (sqrt(v) / sqrt(1-b2^step) + eps)
//
// Element-wise in fp32 with fixed roundings: bits do not depend on the instruction set, on the
// number of threads or on how a parameter is cut into ranges, and the CUDA kernel gives the same
// bits.
//
// Moments may be kept in bf16, rounded stochastically (the update itself takes them unrounded).
// The 16 random bits of m and of v of element e are the low and the high half of word e / 16 % 4
// of philox_block(rounding_seed, step, e / 64 * 16 + e % 16): bits do not depend on the cut here
// either, where e counts alike.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

struct AdamWArgs {
  float* master = nullptr;  // [n], updated
  void* m = nullptr;        // [n] of moments_dtype, updated
  void* v = nullptr;        // [n] of moments_dtype, updated
  const void* grad = nullptr;
  DType grad_dtype = DType::kFloat32;
  void* weights_out =
      nullptr;  // [n] of weights_dtype (nearest even), or null. May not overlap the rest.
  DType weights_dtype = DType::kFloat32;
  std::int64_t n = 0;
  // Doubles, because 1 - beta of a rounded 0.999F is 5e-5 off.
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;    // of this update, from 1
  double grad_scale = 1.0;  // clip coefficient / loss scale
  // fp32, or bf16 with stochastic rounding (host only: launch_adamw refuses it). fp16 cannot hold
  // second moments below 6e-8.
  DType moments_dtype = DType::kFloat32;
  std::uint64_t rounding_seed = 0;
  std::int64_t rounding_element = 0;  // e of element 0, >= 0; unlike for all elements of a run
};

// What an update needs of the hyper-parameters, computed in double and rounded once.
struct AdamWConstants {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^step)
  float eps;
  float minus_step_size;  // -lr / (1 - beta1^step)
  float decay;            // 1 - lr * weight_decay
};

[[nodiscard]] AdamWConstants adamw_constants(const AdamWArgs& args);

// Runs on the compute threads (parallel.hpp). Throws Error on step < 1, n < 0, a null pointer,
// moments in fp16.
void adamw(const AdamWArgs& args);

}  // namespace sluice
