// AdamW over one range of fp32 master weights and moments. One pass reads the gradient in its own
// dtype, updates p, m and v in place, and writes the weights in the training dtype.
//
//   g = scale * grad;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g;  p *= 1 - lr wd
//   p -= lr / (1-b1^step) * m / (sqrt(v) / sqrt(1-b2^step) + eps)
//
// Element-wise in fp32 with fixed roundings. The result does not depend on the instruction set, the
// number of threads, or the cut of a parameter into ranges. The CUDA kernel gives the same bits.
//
// Moments may be stored in bf16 with stochastic rounding; the update itself uses them unrounded.
// The 16 random bits for m and v of element e are the low and the high half of word e / 16 % 4 of
// philox_block(rounding_seed, step, e / 64 * 16 + e % 16). The bits depend on e alone, not on the
// cut.
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
  // [n] of weights_dtype, rounded to nearest even; or null. Must not overlap the other buffers.
  void* weights_out = nullptr;
  DType weights_dtype = DType::kFloat32;
  std::int64_t n = 0;
  // Doubles: 1 - beta would be 5e-5 off if beta were 0.999F.
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;    // number of this update; the first is 1
  double grad_scale = 1.0;  // clip coefficient / loss scale
  // fp32, or bf16 with stochastic rounding (host only: launch_adamw refuses bf16). fp16 is refused
  // because it cannot hold second moments below 6e-8.
  DType moments_dtype = DType::kFloat32;
  std::uint64_t rounding_seed = 0;
  std::int64_t rounding_element = 0;  // e of element 0, >= 0; e is unique among a run's elements
};

// Constants of one update, computed in double from the hyper-parameters and rounded once.
struct AdamWConstants {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^step)
  float eps;
  float minus_step_size;  // -lr / (1 - beta1^step)
  float decay;            // 1 - lr * weight_decay
};

[[nodiscard]] AdamWConstants adamw_constants(const AdamWArgs& args);

// Runs on the compute threads (parallel.hpp). Throws Error for step < 1, n < 0, a null pointer, or
// moments in fp16.
void adamw(const AdamWArgs& args);

}  // namespace sluice
