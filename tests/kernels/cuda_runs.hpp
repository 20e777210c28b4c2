// Runs the kernels of block_launch.hpp for a test: their bodies on the host, one thread after
// another (cuda_runs_host.cpp), or the kernels (cuda_runs_device.cpp). A test that is linked with
// one of these shows either. Results are in memory when a function returns.
#pragma once

#include "kernels/cuda/block_launch.hpp"

namespace sluice::testing {

// Memory of the arguments, which host and kernels reach: a multiple of 16 bytes.
[[nodiscard]] void* take_memory(std::size_t bytes);
void give_memory(void* memory) noexcept;

void run_gelu(const cuda::GeluArgs& a);
void run_gelu_gradient(const cuda::GeluGradient& a);
void run_swiglu(const cuda::SwigluArgs& a);
void run_swiglu_gradient(const cuda::SwigluGradient& a);
void run_rope(const cuda::RopeTokens& a);
void run_branch(const cuda::BranchArgs& a);
void run_norm_forward(const cuda::NormRows& a, void* y);
void run_branch_norm(const cuda::BranchArgs& branch, const cuda::NormRows& a, void* y);
void run_norm_input_gradient(const cuda::NormRows& a, const cuda::NormInputGradient& to);
void run_norm_parts(const cuda::NormRows& a, const cuda::NormParts& to);
void run_column_parts(const cuda::ColumnParts& a);
void run_join_rows(const cuda::JoinedRows& a);
void run_column_totals(const cuda::ColumnTotal* sums, int count);
void run_embedding_gradient(const cuda::EmbeddingGradient& a);
void run_token_lookup(const cuda::TokenLookup& a);
void run_entropy(const cuda::EntropyArgs& a);
void run_entropy_parts(const cuda::EntropyArgs& a, cuda::EntropyPart* parts);
void run_copy_heads(const cuda::HeadCopy& a, bool back);
void run_attention_scores(const cuda::AttentionScores& a);
void run_fp8_quantise(const cuda::Fp8Operands& operands);

}  // namespace sluice::testing
