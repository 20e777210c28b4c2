// Launchers of the kernels of transformer blocks, under the rules of launch.hpp. Element types are
// fp32, bf16 and fp16, arithmetic is fp32, a result is rounded once. No atomics: the bits are the
// same from run to run. Buffers at addresses that are multiples of 16 bytes, with rows of such a
// length, are read and written 16 bytes at a time; all others one element at a time.
//
// CPU bits: GELU, SwiGLU, rotary positions, dropout, column sums, lookup and gradient of
// embeddings, weight gradients of norms (with equal statistics). The statistics of norms and the
// two means of their input gradient are fp32 sums in an order of their own, so a norm differs from
// the CPU's in the last bits.
#pragma once

#include "kernels/cuda/attention_args.hpp"
#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/fp8_args.hpp"
#include "kernels/cuda/launch.hpp"

namespace sluice::cuda {

// Writes mean and rstd unless null. y may be x.
void launch_norm_forward(const NormRows& rows, void* y, StreamRef stream);
// Reads mean and rstd, as does launch_norm_parts.
void launch_norm_input_gradient(const NormRows& rows, const NormInputGradient& to,
                                StreamRef stream);
void launch_norm_parts(const NormRows& rows, const NormParts& to, StreamRef stream);
void launch_column_parts(const ColumnParts& args, StreamRef stream);
void launch_join_rows(const JoinedRows& args, StreamRef stream);
// One kernel for each 32 sums. `sums` is host memory and is read before the function returns.
void launch_column_totals(const ColumnTotal* sums, int count, StreamRef stream);
void launch_gelu(const GeluArgs& args, StreamRef stream);
void launch_gelu_gradient(const GeluGradient& args, StreamRef stream);
void launch_swiglu(const SwigluArgs& args, StreamRef stream);
void launch_swiglu_gradient(const SwigluGradient& args, StreamRef stream);
void launch_rope(const RopeTokens& tokens, StreamRef stream);
void launch_branch(const BranchArgs& args, StreamRef stream);
// launch_branch(args), then launch_norm_forward() of its result, with the same bits, by one kernel.
// REQUIRES: rows.at.x is args.out.
void launch_branch_norm(const BranchArgs& args, const NormRows& rows, void* y, StreamRef stream);
// Two kernels: one sorts the tokens by row, one adds. With args.at.rows the sort compares every two
// tokens.
void launch_embedding_gradient(const EmbeddingGradient& args, StreamRef stream);
void launch_entropy(const EntropyArgs& args, StreamRef stream);
// Writes the parts [rows] of this rank's slice. Does not use slices.parts, losses and gradient of
// `args`.
void launch_entropy_parts(const EntropyArgs& args, EntropyPart* parts, StreamRef stream);
// `back`: from packed memory to tokens.
void launch_copy_heads(const HeadCopy& args, bool back, StreamRef stream);
void launch_attention_scores(const AttentionScores& args, StreamRef stream);
void launch_token_lookup(const TokenLookup& args, StreamRef stream);
// Two kernels: the largest magnitudes in parts, then codes and reciprocal scales. The host reads
// nothing. Throws Error where an operand's rows are not whole multiples of 16 bytes.
void launch_fp8_quantise(const Fp8Operands& operands, StreamRef stream);

}  // namespace sluice::cuda
