// The kernels, on a GPU or on the emulated one.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/kernels/cuda_runs.hpp"

namespace sluice::testing {
namespace {

template <class Launch, class... Args>
void run(Launch& launch, const Args&... args) {
  launch(args..., cuda::StreamRef{});
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}

}  // namespace

void run_gelu(const cuda::GeluArgs& a) { run(cuda::launch_gelu, a); }
void run_gelu_gradient(const cuda::GeluGradient& a) { run(cuda::launch_gelu_gradient, a); }
void run_swiglu(const cuda::SwigluArgs& a) { run(cuda::launch_swiglu, a); }
void run_swiglu_gradient(const cuda::SwigluGradient& a) { run(cuda::launch_swiglu_gradient, a); }
void run_rope(const cuda::RopeTokens& a) { run(cuda::launch_rope, a); }
void run_branch(const cuda::BranchArgs& a) { run(cuda::launch_branch, a); }
void run_norm_forward(const cuda::NormRows& a, void* y) { run(cuda::launch_norm_forward, a, y); }
void run_branch_norm(const cuda::BranchArgs& branch, const cuda::NormRows& a, void* y) {
  run(cuda::launch_branch_norm, branch, a, y);
}
void run_norm_input_gradient(const cuda::NormRows& a, const cuda::NormInputGradient& to) {
  run(cuda::launch_norm_input_gradient, a, to);
}
void run_norm_parts(const cuda::NormRows& a, const cuda::NormParts& to) {
  run(cuda::launch_norm_parts, a, to);
}
void run_column_parts(const cuda::ColumnParts& a) { run(cuda::launch_column_parts, a); }
void run_join_rows(const cuda::JoinedRows& a) { run(cuda::launch_join_rows, a); }
void run_column_totals(const cuda::ColumnTotal* sums, int count) {
  run(cuda::launch_column_totals, sums, count);
}
void run_embedding_gradient(const cuda::EmbeddingGradient& a) {
  run(cuda::launch_embedding_gradient, a);
}
void run_token_lookup(const cuda::TokenLookup& a) { run(cuda::launch_token_lookup, a); }
void run_entropy(const cuda::EntropyArgs& a) { run(cuda::launch_entropy, a); }
void run_entropy_parts(const cuda::EntropyArgs& a, cuda::EntropyPart* parts) {
  run(cuda::launch_entropy_parts, a, parts);
}
void run_copy_heads(const cuda::HeadCopy& a, bool back) { run(cuda::launch_copy_heads, a, back); }
void run_attention_scores(const cuda::AttentionScores& a) { run(cuda::launch_attention_scores, a); }
void run_fp8_quantise(const cuda::Fp8Operands& operands) {
  run(cuda::launch_fp8_quantise, operands);
}

}  // namespace sluice::testing
