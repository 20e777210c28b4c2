// Attention with shared heads and a sliding window against its definition in double, with
// gradients; and the rotary tables against theirs.
#include "runtime/model/math/attention.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/model/autograd_unit.hpp"
#include "runtime/model/math/rope.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

struct Shape {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t seq;
  std::int64_t window;  // 0: none
};

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kHeadDim = 6;

// softmax(q k^T / sqrt(D)) v under the s x s mask that the definition has.
at::Tensor by_definition(const Shape& shape, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v) {
  const auto widen = [&](const at::Tensor& x) {
    return x.to(c10::ScalarType::Double).repeat_interleave(shape.heads / x.size(1), 1);
  };
  const at::Tensor unseen = at::zeros({shape.seq, shape.seq}, c10::ScalarType::Double);
  for (std::int64_t t = 0; t < shape.seq; ++t) {
    for (std::int64_t j = 0; j < shape.seq; ++j) {
      const bool seen = j <= t && (shape.window == 0 || j > t - shape.window);
      if (!seen) host_data<double>(unseen)[t * shape.seq + j] = -INFINITY;
    }
  }
  const at::Tensor scores = widen(q).matmul(widen(k).transpose(2, 3)).div(std::sqrt(kHeadDim));
  return scores.add(unseen).softmax(-1).matmul(widen(v));
}

class Attention : public ::testing::TestWithParam<Shape> {};

TEST_P(Attention, EqualsItsDefinitionWithGradients) {
  const Shape& shape = GetParam();
  const auto leaf = [&](std::uint64_t key, std::int64_t heads) {
    return rule_tensor(key, {kBatch, shape.seq, heads, kHeadDim}, 1.0).requires_grad_(true);
  };
  const std::vector<at::Tensor> leaves{leaf(1, shape.heads), leaf(2, shape.kv_heads),
                                       leaf(3, shape.kv_heads)};
  std::vector<at::Tensor> heads;
  for (const at::Tensor& x : leaves) heads.push_back(x.transpose(1, 2));
  std::unique_ptr<const WindowMask> window;
  if (shape.window > 0) window = std::make_unique<const WindowMask>(shape.window);
  const at::Tensor dy =
      rule_tensor(4, {kBatch, shape.seq, shape.heads, kHeadDim}, 1.0).transpose(1, 2);
  const at::Tensor ours = causal_attention(heads[0], heads[1], heads[2], 0.0, {}, 0, window.get());
  const at::Tensor exact = by_definition(shape, heads[0], heads[1], heads[2]);
  EXPECT_EQ(ours.sizes(), exact.sizes());
  EXPECT_LT(norm_of(ours.sub(exact)), 1e-6 * norm_of(exact));
  const auto our_grads = root_of(ours)->gradients(leaves, dy);
  const auto exact_grads = root_of(exact)->gradients(leaves, dy.to(c10::ScalarType::Double));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_LT(norm_of(our_grads[i].sub(exact_grads[i])), 2e-6 * norm_of(exact_grads[i]) + 1e-6)
        << i;
  }
  // The s x s path, with a dropout that drops (almost) nothing.
  const at::Tensor replayed =
      causal_attention(heads[0], heads[1], heads[2], 1e-12, {.training = true}, 0, window.get());
  EXPECT_LT(norm_of(replayed.sub(exact)), 1e-6 * norm_of(exact));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Values(Shape{3, 3, 17, 0}, Shape{4, 2, 33, 0},
                                           Shape{6, 1, 65, 0}, Shape{3, 3, 70, 5},
                                           Shape{6, 2, 301, 40}, Shape{4, 1, 600, 257},
                                           Shape{2, 1, 40, 1}, Shape{2, 1, 40, 39},
                                           Shape{2, 2, 40, 40}, Shape{2, 1, 40, 100}),
                         [](const ::testing::TestParamInfo<Shape>& info) {
                           return "heads" + std::to_string(info.param.heads) + "on" +
                                  std::to_string(info.param.kv_heads) + "_seq" +
                                  std::to_string(info.param.seq) + "_window" +
                                  std::to_string(info.param.window);
                         });

TEST(Rope, TurnsPairsOfTheTwoHalves) {
  ModelOptions options;
  options.type = ModelType::kLlama;
  options.head_dim = 6;
  options.seq = 40;
  options.rope_theta = 500;
  const RopeTable rope(options);
  const std::vector<float> frequencies = rope_frequencies(options);
  ASSERT_EQ(frequencies.size(), 3U);
  const at::Tensor x = rule_tensor(9, {2, 3, 37, 6}, 1.0);
  const RopeTable::Angles angles = rope.angles({0, 37}, x.device());
  const at::Tensor y = RopeTable::apply(x, 2, angles);
  EXPECT_TRUE(RopeTable::apply(x.transpose(1, 2), 1, angles).transpose(1, 2).equal(y));
  for (std::int64_t row = 0; row < 2 * 3 * 37; ++row) {
    const float* in = host_data<float>(x) + row * 6;
    const float* out = host_data<float>(y) + row * 6;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(frequencies[i], std::pow(500.0, -static_cast<double>(i) / 3), 1e-7);
      const double angle = static_cast<double>(row % 37) * frequencies[i];
      EXPECT_NEAR(out[i], in[i] * std::cos(angle) - in[i + 3] * std::sin(angle), 5e-6);
      EXPECT_NEAR(out[i + 3], in[i + 3] * std::cos(angle) + in[i] * std::sin(angle), 5e-6);
    }
  }
}

TEST(Rope, Llama3KeepsFastFrequenciesDividesSlowOnesAndBlendsBetween) {
  ModelOptions options;
  options.type = ModelType::kLlama;
  options.head_dim = 128;
  options.rope_theta = 500000;
  const std::vector<float> plain = rope_frequencies(options);
  options.rope_scaling = RopeScaling::kLlama3;
  const std::vector<float> scaled = rope_frequencies(options);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_FLOAT_EQ(scaled.back(), plain.back() / 8);
  int between = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_LE(scaled[i], plain[i]);
    EXPECT_GE(scaled[i], plain[i] / 8 * 0.9999F);
    between += scaled[i] < plain[i] * 0.999F && scaled[i] > plain[i] / 8 * 1.001F ? 1 : 0;
  }
  EXPECT_GT(between, 3);
}

}  // namespace
}  // namespace sluice::testing
