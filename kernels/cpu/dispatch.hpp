// One table of kernels per instruction set. The first use chooses the table: detect_isa(), or
// SLUICE_ISA (scalar, avx2, avx512). All tables give the same bits. The functions work on one
// range, on the calling thread, and check nothing; the public headers of this folder are the
// interface.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "kernels/cpu/layer_norm.hpp"
#include "kernels/cpu/rms_norm.hpp"
#include "kernels/cpu/rope.hpp"
#include "kernels/cpu/update/adamw.hpp"
#include "kernels/cpu/update/lion.hpp"
#include "kernels/cpu/update/sgd.hpp"

namespace sluice {

struct PhiloxRange {
  std::uint64_t seed, stream, first;
  std::int64_t n;
};

struct ColumnSumArgs {
  float* total;
  const void* x;
  DType dtype;
  std::int64_t rows, columns;
};

struct SwigluGradient {
  void* d_gate;
  void* d_up;
  void* y;  // null: it is not wanted
};

struct KernelTable {
  const char* name;
  void (*convert)(void* dst, DType dst_dtype, const void* src, DType src_dtype, std::int64_t n);
  void (*add_to)(float* acc, const void* x, DType dtype, std::int64_t n, bool accumulate);
  // Elements [begin, begin + n) of every buffer.
  void (*ordered_sum)(float* out, const void* const* inputs, std::int64_t count, DType dtype,
                      std::int64_t begin, std::int64_t n, bool accumulate);
  void (*scale)(float* x, std::int64_t n, float factor);
  // out = a + b, rounded to dtype.
  void (*add_rows)(void* out, const void* a, const void* b, DType dtype, std::int64_t n);
  void (*adamw)(const UpdateSpan& span, const AdamWConstants& c, std::int64_t begin,
                std::int64_t n);
  void (*lion)(const UpdateSpan& span, const LionConstants& c, std::int64_t begin, std::int64_t n);
  void (*sgd)(const UpdateSpan& span, const SgdConstants& c, std::int64_t begin, std::int64_t n);
  double (*sum_squares_block)(const void* x, DType dtype, std::int64_t n);
  std::int64_t (*first_non_finite)(const void* x, DType dtype, std::int64_t n);  // n: none
  float (*row_max)(const float* x, std::int64_t n);
  // Returns the sum of exp(x - max). Writes the exponentials to `out` unless `out` is null.
  double (*row_exp_sum)(float* out, const float* x, std::int64_t n, float max);
  void (*gelu_forward)(void* y, const void* x, DType dtype, std::int64_t n);
  // y null: it is not wanted.
  void (*gelu_backward)(void* dx, void* y, const void* x, const void* dy, DType dtype,
                        std::int64_t n);
  void (*swiglu_forward)(void* y, const void* gate, const void* up, DType dtype, std::int64_t n);
  void (*swiglu_backward)(const SwigluGradient& to, const void* gate, const void* up,
                          const void* dy, DType dtype, std::int64_t n);
  // Rows [begin, end).
  void (*layer_norm_forward)(const LayerNormArgs& args, void* y, std::int64_t begin,
                             std::int64_t end);
  void (*layer_norm_input_gradient)(const LayerNormArgs& args, void* dx, const void* dy,
                                    const void* residual, std::int64_t begin, std::int64_t end);
  // Columns [begin, end). Adds to both outputs.
  void (*layer_norm_weight_gradient)(const LayerNormArgs& args, float* d_weight, float* d_bias,
                                     const void* dy, std::int64_t begin, std::int64_t end);
  // Ranges as for layer_norm.
  void (*rms_norm_forward)(const RmsNormArgs& args, void* y, std::int64_t begin, std::int64_t end);
  void (*rms_norm_input_gradient)(const RmsNormArgs& args, void* dx, const void* dy,
                                  const void* residual, std::int64_t begin, std::int64_t end);
  void (*rms_norm_weight_gradient)(const RmsNormArgs& args, float* d_weight, const void* dy,
                                   std::int64_t begin, std::int64_t end);
  void (*rope)(const RopeArgs& args, std::int64_t begin, std::int64_t end);  // rows
  void (*column_sum)(const ColumnSumArgs& args, std::int64_t begin, std::int64_t end);
  // out = residual + x * factor; residual null: none.
  void (*multiply_add)(void* out, const void* x, const float* factor, const void* residual,
                       DType dtype, std::int64_t n);
  // grad = scale * weights * (grad - sum(weights * grad)).
  void (*softmax_gradient_row)(float* grad, const float* weights, std::int64_t n, float scale);
  void (*exp)(float* y, const float* x, std::int64_t n);  // for tests of the exponential itself
  void (*fill_normal)(float* out, const PhiloxRange& range, float mean, float std);
  void (*fill_mask_bytes)(std::uint8_t* out, const PhiloxRange& range, std::uint64_t threshold);
  void (*fill_mask_floats)(float* out, const PhiloxRange& range, std::uint64_t threshold,
                           float keep);
};

// Null if this machine or this build cannot run the instruction set.
[[nodiscard]] const KernelTable* table_for(Isa isa);

// The table in use. Throws ConfigError if SLUICE_ISA names no instruction set, or one that this
// machine cannot run.
[[nodiscard]] const KernelTable& kernels();

// Replaces the table in use. REQUIRES: table_for(isa) is not null, no kernel is running. For tests.
void select_isa(Isa isa);

}  // namespace sluice
