// Update of one range of fp32 master weights and moments, for every optimizer. One pass reads the
// gradient in its own dtype, updates master weights and moments in place, and writes the weights in
// the training dtype.
//
// Element-wise in fp32 with fixed roundings. The result does not depend on the instruction set, the
// number of threads, or the cut of a parameter into ranges. The CUDA kernels give the same bits.
//
// The new master weights and moments may go to other memory (master_out), so that the old ones
// stay.
//
// With bf16 weights, an update replaces every tie by the next fp32 value towards zero, which rounds
// to the same weight (leave_ties() of remainder.hpp). The weight and the low 16 bits (the
// remainder) then determine the master weight, and `remainders` can stand for master weights. This
// saves 2 bytes a parameter, and the bits are the same.
//
// Moments may be stored in bf16 with stochastic rounding; the update itself uses them unrounded.
// The 16 random bits for the first and the second moment of element e are the low and the high half
// of word e / 16 % 4 of philox_block(rounding_seed, step, e / 64 * 16 + e % 16). The bits depend on
// e alone, not on the cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.hpp"

namespace sluice {

inline constexpr std::size_t kMostMoments = 2;  // of one optimizer

struct UpdateSpan {
  float* master = nullptr;  // [n], updated; null with remainders
  // [n], updated, in place of `master`; or null. The master weights are then `weights` joined with
  // `remainders`. REQUIRES: weights_out, in bf16; in CUDA launchers, weights_out == weights.
  std::uint16_t* remainders = nullptr;
  const void* weights = nullptr;  // [n] bf16, with remainders; may be weights_out
  // [n] of moments_dtype each, updated. No std::array: isa_*.cpp may not emit its functions.
  void* moments[kMostMoments] = {};
  // [n] each, of the same types: other memory for the new master weights or remainders, and for the
  // new moments. `master`, `remainders` and `moments` then do not change. Null: in place. All or
  // none. The buffers must not overlap. Host only: CUDA launchers refuse them.
  float* master_out = nullptr;
  std::uint16_t* remainders_out = nullptr;
  void* moments_out[kMostMoments] = {};
  const void* grad = nullptr;
  DType grad_dtype = DType::kFloat32;
  // [n] of weights_dtype, rounded to nearest even; or null. Must not overlap the other buffers,
  // except that it may be `weights`.
  void* weights_out = nullptr;
  DType weights_dtype = DType::kFloat32;  // of the weights, wherever they are rounded
  std::int64_t n = 0;
  // Doubles: 1 - beta would be 5e-5 off if beta were 0.999F.
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;        // adamw; false: weight_decay * master is added to the gradient
  bool bias_correction = true;  // adamw; false: both divisors 1 - beta^step are 1
  double momentum = 0.9;
  std::int64_t step = 1;    // number of this update; the first is 1
  double grad_scale = 1.0;  // clip coefficient / loss scale
  // fp32, or bf16 with stochastic rounding. fp16 is refused because it cannot hold second moments
  // below 6e-8.
  DType moments_dtype = DType::kFloat32;
  std::uint64_t rounding_seed = 0;
  std::int64_t rounding_element = 0;  // e of element 0, >= 0; e is unique among a rank's elements
};

// Throws Error, with the optimizer's name, on n < 0, a null pointer, moments in fp16, other memory
// for only a part of the new states, remainders beside master weights, or remainders of weights
// that are not bf16.
void check_span(const UpdateSpan& span, const std::string& optimizer, std::size_t moments);

}  // namespace sluice
