// Shared by the branches of explicit blocks: the sum with the residual stream, dropout, and the
// tokens that an MLP takes at a time. Tensors are contiguous; [N, H] is N tokens of H elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/model/blocks/block_parts.hpp"
#include "runtime/model/math/explicit_kernels.hpp"

namespace sluice {

// Tokens out of `rows` [N, H] that an MLP runs at a time, so that its ffn-sized results are those
// of a chunk.
[[nodiscard]] std::int64_t chunk_rows(const at::Tensor& rows);

// residual + dropout(x W^T + b): x [N, I], weight [H, I], bias [H] or undefined.
struct BranchEnd {
  const at::Tensor& residual;
  const Measured& x;
  const at::Tensor& weight;
  at::Tensor bias;
  DropoutPlace dropout;
};
// out [N, H] must not overlap the others. In fp32 without dropout the GEMM adds to the residual; in
// 16 bits that sum would be rounded once more. On a GPU one kernel adds bias and residual to the
// product.
void residual_linear(at::Tensor out, const BranchEnd& end);
// The same, then the norm of `out` [N, H], in one kernel on a GPU. next.x is out.
[[nodiscard]] Measured normed_residual_linear(const at::Tensor& out, const BranchEnd& end,
                                              const BlockNorm& next);

// The same for a product that is complete, summed over tensor-parallel ranks and without its bias:
// out = residual + dropout(out + bias).
struct BranchSum {
  const at::Tensor& residual;
  at::Tensor bias;
  DropoutPlace dropout;
};
void residual_sum(const at::Tensor& out, const BranchSum& end);

// The gradient that enters a branch behind its dropout; dy itself without dropout.
[[nodiscard]] at::Tensor branch_gradient(const at::Tensor& dy_NH, const DropoutPlace& place);

}  // namespace sluice
