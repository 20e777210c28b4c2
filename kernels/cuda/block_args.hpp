// Arguments of the kernels of transformer blocks (block_launch.hpp). Pointers are device memory;
// buffers named without a type are of `dtype`. Plain structs, also for C++17.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/cpu/layer_norm.hpp"
#include "kernels/cpu/rope.hpp"
#include "kernels/cuda/step_scalars.hpp"

namespace sluice::cuda {

// `row_maxima` [rows], unless null, gets the bits of the largest magnitude of each row that the
// kernel writes, for FP8 products (fp8_args.hpp). REQUIRES: rows are bf16 and whole packs.

// Rows of a LayerNorm, or of an RMSNorm, which has neither mean nor bias.
struct NormRows {
  LayerNormArgs at;
  bool centered = true;                 // LayerNorm
  std::uint32_t* row_maxima = nullptr;  // of y
};

// dx = residual + gradient of x; residual may be null; dx may be dy or residual.
struct NormInputGradient {
  void* dx = nullptr;
  const void* dy = nullptr;
  const void* residual = nullptr;
};

// Sums over rows take two passes, with the bits of column_sum() (layer_norm.hpp): one kernel writes
// the parts [blocks, columns], a sum of each kSumRows rows, and another adds up the parts of many
// sums.
inline std::int64_t sum_blocks(std::int64_t rows) { return (rows + kSumRows - 1) / kSumRows; }

// Parts of x [rows, columns].
struct ColumnParts {
  const void* x = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float* parts = nullptr;
};

// Matrices of the same rows side by side in `to` [rows, all columns], and the parts of the sums
// over its rows, as ColumnParts has them.
struct JoinedRows {
  static constexpr int kMatrices = 3;
  void* to = nullptr;
  const void* from[kMatrices] = {};      // [rows, columns]
  std::int64_t columns[kMatrices] = {};  // 0: there is no such matrix
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  float* parts = nullptr;
};

// Parts of a norm's weight gradient and, for a LayerNorm, behind them those of its bias gradient.
struct NormParts {
  const void* dy = nullptr;
  float* parts = nullptr;
};

// total [columns] = sum of the parts, or += with `accumulate`.
struct ColumnTotal {
  float* total = nullptr;
  const float* parts = nullptr;
  std::int64_t blocks = 0;
  std::int64_t columns = 0;
  bool accumulate = false;
};

// y [rows, width] = gelu(x). y may be x.
struct GeluArgs {
  void* y = nullptr;
  const void* x = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t width = 0;
  std::int64_t rows = 1;
  std::uint32_t* row_maxima = nullptr;  // of y
};

// dx [rows, width] = dy gelu'(x), and y = gelu(x) unless null. dx may be x, and y may be dy; or dx
// may be dy without y.
struct GeluGradient {
  void* dx = nullptr;
  void* y = nullptr;
  const void* x = nullptr;
  const void* dy = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t width = 0;
  std::int64_t rows = 1;
  std::uint32_t* row_maxima = nullptr;  // of dx; only without y and parts
  float* parts = nullptr;  // unless null: of the sums over dx's rows, as ColumnParts has them
};

// gate_up [rows, 2 width], a row's gate before its up. y [rows, width] = silu(gate) up.
struct SwigluArgs {
  void* y = nullptr;
  const void* gate_up = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::uint32_t* row_maxima = nullptr;  // of y
};

// d_gate_up [rows, 2 width], the gradient of gate_up for dy [rows, width], and y as above unless
// null. d_gate_up may be gate_up, and y may be dy.
struct SwigluGradient {
  void* d_gate_up = nullptr;
  void* y = nullptr;
  const void* gate_up = nullptr;
  const void* dy = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::uint32_t* row_maxima = nullptr;  // of d_gate_up; only without y
};

// As rope() of kernels/cpu/rope.hpp. With positions, token r has positions[r], a row of the angles.
struct RopeTokens {
  RopeArgs at;
  const std::int64_t* positions = nullptr;
};

// The dropout mask (fill_dropout_mask) of a matrix [rows, columns]. Element i has the number
// n = first + i. It belongs to sample n / per_sample and is element offset + n % per_sample of that
// sample's stream, hash_stream({step, first_sample + sample, site}). With `scalars`, scalars->step
// replaces `step`.
struct MaskPlace {
  std::uint64_t threshold = 0;  // dropout_threshold(p); 0: nothing is dropped
  float keep = 1;               // 1 / (1 - p)
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t first_sample = 0;
  std::uint64_t site = 0;
  std::int64_t per_sample = 1;
  std::int64_t first = 0;
  std::int64_t offset = 0;
  const StepScalars* scalars = nullptr;
};

// The end of a block's branch: out = residual + dropout(x + bias), [rows, columns]. bias and
// residual may be null; out may be x or residual.
struct BranchArgs {
  void* out = nullptr;
  const void* x = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  MaskPlace mask;
};

// The table row of each token n: rows[n], or n % period if `rows` is null.
struct TokenRows {
  const std::int64_t* rows = nullptr;
  std::int64_t tokens = 0;
  std::int64_t period = 1;
};

// grad[row of token t - first] += dy[t], for tokens whose row lies in [first, first + rows). Other
// tokens add nothing. grad: [rows, hidden]; dy: [tokens, hidden].
struct EmbeddingGradient {
  float* grad = nullptr;
  const void* dy = nullptr;
  std::int32_t* order = nullptr;  // [tokens] scratch
  DType dtype = DType::kFloat32;
  TokenRows at;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
};

// A row without a target: no loss, no gradient (kIgnoreTarget of softmax_cross_entropy.hpp).
inline constexpr std::int64_t kNoTarget = -100;

// What one slice of the vocabulary knows of a row. Floats in memory, which ranks exchange.
struct EntropyPart {
  float max = 0;
  float sum = 0;     // of exp(logit - max)
  float target = 0;  // logit of the target; 0: another slice has it
};

// The slices of a vocabulary that is cut over ranks. Without parts the columns are all words.
struct EntropySlices {
  const EntropyPart* parts = nullptr;  // [ranks, rows]
  int ranks = 0;
  std::int64_t first = 0;  // word of the first column
  std::int64_t words = 0;  // of all slices
};

// Softmax cross entropy of the first `vocab` logits of each row. logits: [rows, row_stride] in
// fp32. Writes losses [rows]: NaN for a target that is neither a word nor kNoTarget. With
// `gradient`, (softmax - onehot) x scale in `dtype` replaces the logits, from the beginning of each
// row. With `scalars`, scalars->loss_factor replaces `scale`. Slices are merged in rank order, so
// all ranks get the same bits. REQUIRES: logits and their rows begin at multiples of 16 bytes.
struct EntropyArgs {
  float* logits = nullptr;
  bool gradient = false;
  float* losses = nullptr;
  const std::int64_t* targets = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  std::int64_t row_stride = 0;
  float scale = 1;
  EntropySlices slices{};
  const StepScalars* scalars = nullptr;
};

// out[t] = the row of tokens[t] in a rank's slice of a table of `words` rows, which begins at row
// `first`; zeros if another slice has the row, NaN if no slice has it.
struct TokenLookup {
  void* out = nullptr;                   // [count, hidden]
  const void* table = nullptr;           // [rows, hidden]
  const std::int64_t* tokens = nullptr;  // [count]
  DType dtype = DType::kFloat32;
  std::int64_t count = 0;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t words = 0;
  std::int64_t hidden = 0;
};

}  // namespace sluice::cuda
