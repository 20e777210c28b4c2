// A table cut into runs of rows against the kernel that has all of it.
#include "kernels/cpu/embedding/embedding_slice.hpp"

#include "base/error.hpp"
#include "kernels/cpu/embedding/embedding.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kRows = 11;
const std::vector<std::int64_t> kTokens{3, 3, 0, 10, 3, 7, 8, 0};
const std::vector<std::pair<std::int64_t, std::int64_t>> kCuts{{0, 4}, {4, 4}, {8, 3}};

EmbeddingSlice slice_of(std::size_t cut, std::int64_t hidden) {
  return {.tokens = kTokens,
          .first = kCuts[cut].first,
          .rows = kCuts[cut].second,
          .table_rows = kRows,
          .hidden = hidden};
}

TEST(EmbeddingSlice, OneSliceHasTheRowAndTheOthersZeros) {
  for (const std::int64_t hidden : {1L, 17L}) {
    const std::vector<float> table = normal_values(kRows * hidden, 1);
    std::vector<float> sum(kTokens.size() * static_cast<std::size_t>(hidden), 0);
    for (std::size_t cut = 0; cut < kCuts.size(); ++cut) {
      std::vector<float> out(sum.size(), 9);
      embedding_slice_forward(out.data(), table.data() + kCuts[cut].first * hidden, DType::kFloat32,
                              slice_of(cut, hidden));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += out[i];
    }
    std::vector<float> want(sum.size());
    embedding_forward({.out = want.data(),
                       .table = table.data(),
                       .tokens = kTokens,
                       .rows = kRows,
                       .hidden = hidden});
    EXPECT_EQ(sum, want);
  }
}

TEST(EmbeddingSlice, BackwardAddsTheRowsOfTheSliceInOrder) {
  for (const std::int64_t hidden : {1L, 17L, 5000L}) {
    const auto count = static_cast<std::int64_t>(kTokens.size());
    const std::vector<float> dy = normal_values(count * hidden, 3);
    const std::vector<float> start = normal_values(kRows * hidden, 4);
    for (const DType dtype : kDTypes) {
      const auto source = as_bytes(dy, dtype);
      std::vector<float> want = start;
      embedding_backward(want.data(), kTokens, source.data(), dtype, kRows, hidden);
      on_every_setting([&] {
        std::vector<float> grad = start;
        for (std::size_t cut = 0; cut < kCuts.size(); ++cut) {
          embedding_slice_backward(grad.data() + kCuts[cut].first * hidden, source.data(), dtype,
                                   slice_of(cut, hidden));
        }
        EXPECT_EQ(grad, want);
      });
    }
  }
}

TEST(EmbeddingSlice, RefusesATokenOutsideTheTable) {
  std::vector<float> out(4), table(8);
  const std::vector<std::int64_t> bad{kRows};
  EmbeddingSlice slice = slice_of(0, 1);
  slice.tokens = bad;
  EXPECT_THROW(embedding_slice_forward(out.data(), table.data(), DType::kFloat32, slice), Error);
  EXPECT_THROW(embedding_slice_backward(out.data(), table.data(), DType::kFloat32, slice), Error);
}

}  // namespace
}  // namespace sluice::testing
