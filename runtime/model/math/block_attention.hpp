// Causal attention on the host in blocks of queries: of a sliding window (see WindowMask), of the
// documents of packed rows, or of both. A backward of its own, because libtorch's backward of
// overlapping slices would fill a tensor of all keys for every block.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "runtime/model/unit.hpp"

namespace sluice {

// Row r of q belongs to sample r / (rows of q / samples).
struct DocumentRun {
  std::int64_t first_row = 0, rows = 0;  // of q: the sample's
  std::int64_t first = 0, count = 0;     // tokens
};
// The documents of `samples` packed rows; each row is one where the call names none.
[[nodiscard]] std::vector<DocumentRun> document_runs(const UnitCall& call, const at::Tensor& q,
                                                     std::int64_t samples);

// q, k, v: [R, G, S, D] (any strides; G of k and v may have stride 0). band: WindowMask's, on their
// device; undefined: no window. runs: the documents; all rows are alike if it is empty.
struct BlockAttention {
  at::Tensor q, k, v, band;
  std::vector<DocumentRun> runs;
};

// Output [R, G, S, D] in the order of q's strides, and the rows' log-sum-exp [R, G, S] fp32.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> block_attention_forward(const BlockAttention& in);
[[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> block_attention_backward(
    const BlockAttention& in, const at::Tensor& out, const at::Tensor& lse, const at::Tensor& grad);

// Differentiable: both as one autograd function.
[[nodiscard]] at::Tensor block_attention(const BlockAttention& in);

}  // namespace sluice
