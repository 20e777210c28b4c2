// Causal attention with its gradient. A GPU's is in device_attention.hpp. On the host: batched
// GEMMs on blocks of queries that stop at the diagonal, in fp32 for any dtype. Twice the rate of
// libtorch's fused CPU kernel at the lengths trained on CPUs; the dropout mask can be replayed.
//
// q and its gradient are [B, heads, S, D]; k, v and their gradients [B, kv_heads, S, D]; heads is a
// multiple of kv_heads. Query heads that share a key head are neighbours. All may be strided views,
// e.g. of one fused projection. The output lies in memory as [B, S, heads, D], so the projection
// after attention takes it as rows of tokens without a copy. Scratch covers 4 key heads of one
// sample: fp32 scores of 64 queries, twice that backward, and fp32 copies of 16-bit operands.
//
// A block of queries lies in one document and meets only the keys in reach: of its document, and of
// its window. No mask exists, and scratch is that of a row that is one document. Forward
// keeps only q, k and v: backward computes the weights again.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/model/math/explicit_kernels.hpp"
#include "runtime/model/model_options.hpp"

namespace sluice {

struct AttentionInput {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  DropoutPlace dropout;         // on the attention weights; per_sample and first are not read
  std::int64_t window = 0;      // keys that a query sees, itself included; 0: all before it
  std::int64_t first_head = 0;  // of q among all the model's, by which dropout knows them
  const Documents* documents = nullptr;  // a query sees keys of its own document; null: one a row
  bool packed = false;                   // ModelOptions::packed_rows
  AttentionBackend backend = AttentionBackend::kFlash;  // ModelOptions::attention
  bool deterministic = false;                           // ModelOptions::deterministic
  int multiprocessors = 1;                              // of the GPU
};

// q, k and v, or their gradients.
struct AttentionHeads {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  // All of them side by side, [B, S, heads + 2 kv_heads, D]; only of gradients. On a GPU nothing is
  // written if undefined.
  at::Tensor fused{};
  // The first pass of the sum over fused's tokens (RowSums::start), unless undefined; only of
  // gradients, where attention_sums().
  at::Tensor parts{};
};

struct AttentionResult {
  at::Tensor out;
  // What backward needs besides `out`. Empty: backward needs q, k and v alone.
  std::vector<at::Tensor> rest{};
};

[[nodiscard]] AttentionResult attention_forward(const AttentionInput& in);
// Writes `grads`, which must not overlap any input. Where attention_reads_output() is false, the
// memory of kept.out may hold grad_output.
void attention_backward(const AttentionInput& in, const AttentionResult& kept,
                        const at::Tensor& grad_output, const AttentionHeads& grads);
// Whether the backward can make the parts of sums over its result.
[[nodiscard]] bool attention_sums(const AttentionInput& in);
[[nodiscard]] inline bool attention_reads_output(const AttentionResult& kept) {
  return !kept.rest.empty();
}

}  // namespace sluice
