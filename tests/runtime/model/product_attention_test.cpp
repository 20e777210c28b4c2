// Attention by products with the kernels' bodies on the host, against the host's attention: chunks
// and blocks of queries, shared key heads, windows, documents and masks.
#include "runtime/model/device/product_attention.hpp"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "kernels/cuda/attention_body.hpp"
#include "runtime/model/documents.hpp"

namespace sluice::testing {
namespace {

void copy_heads(const cuda::HeadCopy& a, bool back, cuda::StreamRef) {
  for (int t = 0; t < a.count; ++t) {
    for (std::int64_t i = 0; i < cuda::head_packs<float>(a, a.of[t]); ++i) {
      cuda::copy_heads_body<float>(a, a.of[t], i, back, false);
    }
  }
}

void attention_scores(const cuda::AttentionScores& a, cuda::StreamRef) {
  for (std::int64_t row = 0; row < a.chunk.heads * a.queries * a.group; ++row) {
    if (a.grad == nullptr) {
      cuda::score_weights_body<float>(a, row, cuda::Warp{});
    } else {
      cuda::score_gradients_body<float>(a, row, cuda::Warp{});
    }
  }
}

struct Shape {
  std::int64_t heads, kv_heads, seq, dim, window;
  double dropout = 0;
  bool packed = false;
  std::int64_t scratch_bytes = std::int64_t{256} << 20;
};

// q, k and v side by side, as a block has them.
AttentionHeads split(const Shape& shape, const at::Tensor& fused) {
  const at::Tensor all = fused.transpose(1, 2);
  return {all.narrow(1, 0, shape.heads), all.narrow(1, shape.heads, shape.kv_heads),
          all.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads), fused};
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

void expect_the_hosts(const Shape& shape) {
  constexpr std::int64_t kSamples = 2;
  const std::int64_t all = shape.heads + 2 * shape.kv_heads;
  const at::Tensor fused = at::randn({kSamples, shape.seq, all, shape.dim});
  const AttentionHeads heads = split(shape, fused);
  const std::vector<std::vector<std::int32_t>> bounds{
      {0, 17, static_cast<std::int32_t>(shape.seq)},
      {0, static_cast<std::int32_t>(shape.seq / 2), static_cast<std::int32_t>(shape.seq)}};
  const Documents documents(bounds, shape.seq);
  AttentionInput in;
  in.q = heads.q;
  in.k = heads.k;
  in.v = heads.v;
  in.dropout.p = shape.dropout;
  in.dropout.call.training = true;
  in.dropout.call.seed = 5;
  in.dropout.call.step = 6;
  in.dropout.call.first_sample = 7;
  in.dropout.site = 8;
  in.window = shape.window;
  in.first_head = 3;
  in.packed = shape.packed;
  if (shape.packed) in.documents = &documents;
  const device::ProductKernels kernels{copy_heads, attention_scores, shape.scratch_bytes};
  const AttentionResult want = attention_forward(in);
  const AttentionResult got = device::product_attention(in, kernels);
  EXPECT_LT(difference(got.out, want.out), 1e-5);
  EXPECT_FALSE(attention_reads_output(got));
  const at::Tensor grad = at::randn({kSamples, shape.seq, shape.heads, shape.dim}).transpose(1, 2);
  const at::Tensor want_fused = at::zeros_like(fused), got_fused = at::zeros_like(fused);
  attention_backward(in, want, grad, split(shape, want_fused));
  device::product_attention_backward(in, grad, split(shape, got_fused), kernels);
  EXPECT_LT(difference(got_fused, want_fused), 5e-5);
  EXPECT_GT(want_fused.abs().max().item<double>(), 0.1);
}

TEST(ProductAttention, IsTheHostsAttention) {
  constexpr std::int64_t kOneHead = 1, kFewHeads = 10 << 20;
  expect_the_hosts(
      {.heads = 4, .kv_heads = 2, .seq = 1100, .dim = 20, .window = 0, .dropout = 0.1});
  expect_the_hosts({.heads = 3,
                    .kv_heads = 3,
                    .seq = 531,
                    .dim = 8,
                    .window = 70,
                    .dropout = 0.3,
                    .scratch_bytes = kFewHeads});
  expect_the_hosts({.heads = 6,
                    .kv_heads = 2,
                    .seq = 61,
                    .dim = 36,
                    .window = 9,
                    .dropout = 0.1,
                    .packed = true,
                    .scratch_bytes = kOneHead});
  expect_the_hosts({.heads = 2,
                    .kv_heads = 1,
                    .seq = 130,
                    .dim = 5,
                    .window = 0,
                    .packed = true,
                    .scratch_bytes = 200'000});
  expect_the_hosts({.heads = 1, .kv_heads = 1, .seq = 33, .dim = 272, .window = 0});
}

}  // namespace
}  // namespace sluice::testing
