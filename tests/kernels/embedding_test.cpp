#include "kernels/cpu/embedding/embedding.hpp"

#include "base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kRows = 11;
const std::vector<std::int64_t> kTokens{3, 3, 0, 10, 3, 7, 0};

TEST(Embedding, ForwardGathersAndAddsPositions) {
  for (const std::int64_t hidden : {1L, 17L, 64L}) {
    const std::vector<float> words = normal_values(kRows * hidden, 1);
    const std::vector<float> places = normal_values(4 * hidden, 2);
    for (const DType dtype : kDTypes) {
      const auto table = as_bytes(words, dtype);
      const auto positions = as_bytes(places, dtype);
      for (const bool with_positions : {false, true}) {
        std::vector<float> want;
        for (std::size_t t = 0; t < kTokens.size(); ++t) {
          for (std::int64_t j = 0; j < hidden; ++j) {
            const float w =
                rounded(words[static_cast<std::size_t>(kTokens[t] * hidden + j)], dtype);
            const auto p = static_cast<std::size_t>(static_cast<std::int64_t>(t % 4) * hidden + j);
            want.push_back(with_positions ? w + rounded(places[p], dtype) : w);
          }
        }
        on_every_setting([&] {
          std::vector<std::byte> out(want.size() * static_cast<std::size_t>(size_of(dtype)));
          embedding_forward({.out = out.data(),
                             .table = table.data(),
                             .positions = with_positions ? positions.data() : nullptr,
                             .dtype = dtype,
                             .tokens = kTokens,
                             .rows = kRows,
                             .position_rows = with_positions ? 4 : 0,
                             .hidden = hidden});
          EXPECT_EQ(out, as_bytes(want, dtype));
        });
      }
    }
  }
}

TEST(Embedding, BackwardAddsRepeatedTokensInOrderOnAnyThreads) {
  for (const std::int64_t hidden : {1L, 17L, 5000L}) {
    const auto count = static_cast<std::int64_t>(kTokens.size());
    const std::vector<float> dy = normal_values(count * hidden, 3);
    const std::vector<float> start = normal_values(kRows * hidden, 4);
    for (const DType dtype : kDTypes) {
      const auto source = as_bytes(dy, dtype);
      std::vector<float> want = start;
      for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t j = 0; j < hidden; ++j) {
          want[static_cast<std::size_t>(kTokens[static_cast<std::size_t>(t)] * hidden + j)] +=
              rounded(dy[static_cast<std::size_t>(t * hidden + j)], dtype);
        }
      }
      on_every_setting([&] {
        std::vector<float> grad = start;
        embedding_backward(grad.data(), kTokens, source.data(), dtype, kRows, hidden);
        EXPECT_EQ(grad, want);
      });
    }
  }
}

TEST(Embedding, ManyTokensSplitByColumns) {
  constexpr std::int64_t kHidden = 100;
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < 5000; ++t) tokens.push_back(t * t % kRows);
  const std::vector<float> dy = normal_values(5000 * kHidden, 5);
  expect_same_bits_everywhere([&] {
    std::vector<float> grad(kRows * kHidden);
    embedding_backward(grad.data(), tokens, dy.data(), DType::kFloat32, kRows, kHidden);
    return grad;
  });
}

TEST(Embedding, TokensOutsideTheTableAreRefusedBeforeAnythingIsWritten) {
  for (const std::int64_t bad : {-1L, kRows}) {
    const std::vector<std::int64_t> tokens{0, bad};
    std::vector<float> grad(kRows, 1.0F);
    const std::vector<float> dy(2, 1.0F);
    EXPECT_THROW(embedding_backward(grad.data(), tokens, dy.data(), DType::kFloat32, kRows, 1),
                 Error);
    EXPECT_EQ(grad, std::vector<float>(kRows, 1.0F));
    float out[2] = {9.0F, 9.0F};
    EXPECT_THROW(
        embedding_forward(
            {.out = out, .table = grad.data(), .tokens = tokens, .rows = kRows, .hidden = 1}),
        Error);
    EXPECT_EQ(out[0], 9.0F);
  }
}

}  // namespace
}  // namespace sluice::testing
