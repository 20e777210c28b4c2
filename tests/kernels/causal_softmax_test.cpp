#include "kernels/cpu/causal_softmax.hpp"

#include <span>

#include "base/error.hpp"
#include "kernels/cpu/philox.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kHeads = 3;
constexpr float kScale = 0.25F;

struct Rows {
  std::int64_t queries, keys;
  std::int64_t window = 0;
};
// The last two: a window shorter and one longer than the block of queries.
const Rows kBlocks[] = {{1, 1}, {5, 5}, {4, 37}, {64, 200}, {9, 30, 4}, {6, 40, 21}};

CausalBlock block_of(std::vector<float>& scores, const Rows& r) {
  return {.scores = scores.data(),
          .heads = kHeads,
          .queries = r.queries,
          .keys = r.keys,
          .scale = kScale,
          .window = r.window};
}

bool sees(const Rows& r, std::int64_t query, std::int64_t key) {
  const std::int64_t own = r.keys - r.queries + query;
  return key <= own && (r.window == 0 || key > own - r.window);
}

TEST(CausalSoftmax, WeightsAndGradientMatchDouble) {
  for (const Rows& r : kBlocks) {
    const auto keys = static_cast<std::size_t>(r.keys);
    const std::vector<float> scores = normal_values(kHeads * r.queries * r.keys, 1, 20.0F);
    const std::vector<float> grad = normal_values(kHeads * r.queries * r.keys, 2);
    expect_same_bits_everywhere([&] {
      std::vector<float> weights = scores;
      std::vector<float> ds = grad;
      causal_softmax(block_of(weights, r));
      causal_softmax_gradient(block_of(weights, r), ds.data());
      for (std::size_t row = 0; row < scores.size() / keys; ++row) {
        const auto query = static_cast<std::int64_t>(row) % r.queries;
        const std::span<const float> s = std::span(scores).subspan(row * keys, keys);
        double sum = 0, dot = 0;
        const auto exponential = [&](std::size_t k) {
          const bool seen = sees(r, query, static_cast<std::int64_t>(k));
          return seen ? std::exp(double{kScale} * s[k]) : 0.0;
        };
        for (std::size_t k = 0; k < keys; ++k) sum += exponential(k);
        const auto weight = [&](std::size_t k) { return exponential(k) / sum; };
        for (std::size_t k = 0; k < keys; ++k) dot += weight(k) * grad[row * keys + k];
        for (std::size_t k = 0; k < keys; ++k) {
          const std::size_t i = row * keys + k;
          EXPECT_NEAR(weights[i], weight(k), 4e-6 * weight(k) + 1e-12);
          EXPECT_NEAR(ds[i], kScale * weight(k) * (grad[i] - dot), 1e-5 * weight(k) + 1e-12);
        }
      }
      weights.insert(weights.end(), ds.begin(), ds.end());
      return weights;
    });
  }
}

// Blocks and heads see their own piece of the mask of all weights.
TEST(CausalSoftmax, DropoutIsThatOfTheWholeMatrix) {
  constexpr std::int64_t kSeq = 45;
  constexpr std::int64_t kFirst = 20;
  std::vector<float> mask(4 * kSeq * kSeq);
  fill_dropout_mask(std::span<float>(mask), 3, 8, 0, 0.4);
  const Rows r{10, kFirst + 10};
  on_every_setting([&] {
    std::vector<float> ones(static_cast<std::size_t>(kHeads * r.queries * r.keys), 1.0F);
    std::vector<float> out(ones.size());
    drop_weights(block_of(ones, r), ones.data(), out.data(),
                 {.p = 0.4, .seed = 3, .stream = 8, .first_head = 1, .seq = kSeq});
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.size()); ++i) {
      const std::int64_t key = i % r.keys;
      const std::int64_t query = kFirst + i / r.keys % r.queries;
      const std::int64_t head = 1 + i / r.keys / r.queries;
      const float want =
          key <= query ? mask[static_cast<std::size_t>((head * kSeq + query) * kSeq + key)] : 0.0F;
      ASSERT_EQ(out[static_cast<std::size_t>(i)], want) << i;
    }
  });
}

// With a window, keys that begin later, and every second head of the model.
TEST(CausalSoftmax, DropoutOfAWindowIsThatOfTheWholeMatrix) {
  constexpr std::int64_t kSeq = 45;
  constexpr std::int64_t kFirstKey = 13;
  std::vector<float> mask((2 * kHeads + 1) * kSeq * kSeq);
  fill_dropout_mask(std::span<float>(mask), 3, 8, 0, 0.4);
  const Rows r{10, 16, 7};
  on_every_setting([&] {
    std::vector<float> ones(static_cast<std::size_t>(kHeads * r.queries * r.keys), 1.0F);
    std::vector<float> out(ones.size(), kNan);
    CausalBlock block = block_of(ones, r);
    block.first_key = kFirstKey;
    drop_weights(block, ones.data(), out.data(),
                 {.p = 0.4, .seed = 3, .stream = 8, .first_head = 1, .head_step = 2, .seq = kSeq});
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.size()); ++i) {
      const std::int64_t key = i % r.keys;
      const std::int64_t query = i / r.keys % r.queries;
      const std::int64_t head = 1 + 2 * (i / r.keys / r.queries);
      const std::int64_t position = kFirstKey + r.keys - r.queries + query;
      const std::int64_t element = (head * kSeq + position) * kSeq + kFirstKey + key;
      const float want = sees(r, query, key) ? mask[static_cast<std::size_t>(element)] : 0.0F;
      ASSERT_EQ(out[static_cast<std::size_t>(i)], want) << i;
    }
  });
}

TEST(CausalSoftmax, MoreQueriesThanKeysAreRefused) {
  std::vector<float> scores(6 * kHeads);
  EXPECT_THROW(causal_softmax(block_of(scores, {3, 2})), Error);
}

}  // namespace
}  // namespace sluice::testing
