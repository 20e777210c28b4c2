// The functions of explicit_kernels.hpp on a GPU, by the kernels of the CUDA module
// (cuda_kernels.hpp). They enqueue on the current stream and wait for nothing. Meta tensors that
// stand for a GPU's allocate the same scratch and compute nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/model/math/explicit_kernels.hpp"
#include "runtime/model/model_slices.hpp"

namespace sluice::device {

// A norm of either kind: bias undefined and `centered` false for an RMSNorm. statistics: [2, N] or
// [N] of explicit_kernels.hpp, undefined if no backward follows.
struct Norm {
  const at::Tensor& x;
  const at::Tensor& weight;
  const at::Tensor& bias;
  const at::Tensor& statistics;
  double eps = 1e-5;
  bool centered = true;
};

void norm_forward(const Measured& y, const Norm& norm);
void norm_input_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& residual,
                         const Norm& norm);
// The first pass of the sums over rows. The second pass is left to `sums` (RowSums::finish); if
// `sums` is null, the second pass follows at once.
void norm_weight_gradient(const GradTarget& weight, const GradTarget& bias, const at::Tensor& dy,
                          const Norm& norm, RowSums* sums);
void bias_gradient(const GradTarget& target, const at::Tensor& dy, RowSums* sums);
// target = sum of the parts [blocks, columns], in one launch for all.
void finish_sums(std::span<const RowSums::Sum> sums);

// Memory for the first pass of a sum over the rows of x: [blocks, columns].
[[nodiscard]] at::Tensor sum_parts(const at::Tensor& x);

void gelu(const Measured& y, const at::Tensor& x);
void gelu_gradient(const ActivationGradient& to);
void swiglu(const Measured& y, const at::Tensor& gate_up);
void swiglu_gradient(const ActivationGradient& to);

// Tokens of RopeTable::turn. positions: int64 [N] on the device, or undefined.
struct RopeRows {
  const at::Tensor& x;
  const at::Tensor& cos;  // from the first position on
  const at::Tensor& sin;
  at::Tensor positions{};
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  bool back = false;
};
void rope(const RopeRows& rows);

// out = residual + dropout(x + bias), [N, H]; bias and residual may be undefined; out may be x or
// residual.
struct Branch {
  at::Tensor out;
  const at::Tensor& x;
  at::Tensor bias{};
  at::Tensor residual{};
  const DropoutPlace& dropout;
};
void end_branch(const Branch& branch);
// end_branch(), then y = the norm of branch.out, in one launch.
void end_branch(const Branch& branch, const Measured& y, const Norm& norm);

// The factors 0 and 1 of a place's dropout, of x's shape and type.
[[nodiscard]] at::Tensor keep_mask(const at::Tensor& x, const DropoutPlace& place);

// grad [R, H] fp32 += dy [N, H], token n to row rows[n] - first (rows: int64 [N]), or n % period
// where `rows` is undefined; tokens of other rows add nothing. The tokens of a row are added in
// their order, as on the host.
struct EmbeddingRows {
  const at::Tensor& grad;
  const at::Tensor& dy;
  at::Tensor rows{};
  std::int64_t period = 1;
  std::int64_t first = 0;
};
void embedding_gradient(const EmbeddingRows& rows);

// The slices of a vocabulary over tensor-parallel ranks: the words of the logits, those of all
// slices, and fp32 [ranks, C, 3] of entropy_parts().
struct EntropySlice {
  Slice own;
  std::int64_t words = 0;
  at::Tensor parts{};
};

// Cross entropy of logits [C, V] fp32, whose rows may lie further apart: losses [C] fp32 and, if
// defined, gradient [C, V], whose rows begin where those of the logits do. With a slice, V is the
// number of the slice's words, and losses are over all slices. scalars: as in LossFactor.
struct Entropy {
  const at::Tensor& logits;
  const at::Tensor& targets;  // int64 [C]
  const at::Tensor& losses;
  const at::Tensor& gradient;
  double scale = 1;
  EntropySlice slice{};
  const cuda::StepScalars* scalars = nullptr;
};
void cross_entropy(const Entropy& entropy);
// What the slice adds to each row: fp32 [C, 3].
[[nodiscard]] at::Tensor entropy_parts(const Entropy& entropy);

// Rows of a token table of which the rank has `own`.
struct TokenTable {
  Slice own;
  std::int64_t words = 0;  // of all ranks

  // The rank has all `rows`.
  static TokenTable whole(const at::Tensor& rows) { return {{0, rows.size(0)}, rows.size(0)}; }
};
// out [N, H] = rows [own.count, H] of `tokens` [N], zeros for those of other ranks.
void look_up_tokens(const at::Tensor& out, const at::Tensor& rows, const at::Tensor& tokens,
                    const TokenTable& table);

}  // namespace sluice::device
