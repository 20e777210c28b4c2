// Rows of logits cut over ranks against the kernel that has whole rows.
#include "kernels/cpu/slice_entropy.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kVocab = 37;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

struct Rows {
  std::vector<float> logits;  // [rows, kVocab]
  std::vector<std::int64_t> targets;

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(targets.size()); }
  float& at(std::int64_t row, std::int64_t word) {
    return logits[static_cast<std::size_t>(row * kVocab + word)];
  }
};

Rows some_rows() {
  Rows rows{normal_values(6 * kVocab, 3, 4.0F), {0, 15, 16, kVocab - 1, kIgnoreTarget, 20}};
  for (std::int64_t word = 0; word < 16; ++word) rows.at(5, word) = kMasked;  // a whole slice
  rows.at(2, 30) = kMasked;
  rows.at(3, 3) = 80;  // far above its target
  return rows;
}

struct Result {
  double loss = 0;
  std::vector<float> gradient;  // [rows, kVocab]
};

Result of_whole_rows(const Rows& rows, float scale) {
  Result result{0, rows.logits};
  result.loss = softmax_cross_entropy({.logits = result.gradient.data(),
                                       .rows = rows.count(),
                                       .row_stride = kVocab,
                                       .vocab = kVocab,
                                       .width = kVocab,
                                       .targets = rows.targets.data(),
                                       .scale = scale});
  return result;
}

// Slices of 16, 16 and 5 words, as ranks run them: all parts first.
Result of_slices(Rows& rows, float scale, DType dtype = DType::kFloat32) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> cuts{{0, 16}, {16, 16}, {32, 5}};
  std::vector<std::vector<float>> own(cuts.size());
  std::vector<EntropySlice> slices;
  std::vector<RowPart> parts(cuts.size() * rows.targets.size());
  for (std::size_t s = 0; s < cuts.size(); ++s) {
    const auto [first, words] = cuts[s];
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      for (std::int64_t j = 0; j < words; ++j) own[s].push_back(rows.at(row, first + j));
    }
    slices.push_back({own[s].data(), rows.count(), words, first, kVocab, rows.targets.data()});
    std::vector<float> before = own[s];
    slice_softmax(slices[s], parts.data() + s * rows.targets.size(), false);
    EXPECT_EQ(std::memcmp(own[s].data(), before.data(), 4 * before.size()), 0);
    slice_softmax(slices[s], parts.data() + s * rows.targets.size(), true);
  }
  Result result{slice_loss(slices[0], parts), std::vector<float>(rows.logits.size())};
  for (std::size_t s = 0; s < cuts.size(); ++s) {
    const auto [first, words] = cuts[s];
    if (!std::isnan(result.loss)) {
      EXPECT_EQ(slice_loss(slices[s], parts), result.loss);
    }
    slice_gradient(slices[s], parts, {.rank = static_cast<int>(s), .scale = scale, .dtype = dtype});
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      std::vector<float> wide(static_cast<std::size_t>(words));
      convert(wide.data(), DType::kFloat32, own[s].data() + row * words, dtype, words);
      std::copy(wide.begin(), wide.end(),
                &result.gradient[static_cast<std::size_t>(row * kVocab + first)]);
    }
  }
  return result;
}

TEST(SliceEntropy, EqualsThatOfWholeRows) {
  Rows rows = some_rows();
  const Result want = of_whole_rows(rows, 0.5F);
  on_every_setting([&] {
    const Result ours = of_slices(rows, 0.5F);
    EXPECT_NEAR(ours.loss, want.loss, 1e-6 * want.loss);
    for (std::size_t i = 0; i < want.gradient.size(); ++i) {
      EXPECT_NEAR(ours.gradient[i], want.gradient[i], 4e-7) << i;
    }
    const Result narrow = of_slices(rows, 0.5F, DType::kBFloat16);
    for (std::size_t i = 0; i < want.gradient.size(); ++i) {
      EXPECT_EQ(narrow.gradient[i], float_of_bf16(bf16_bits(ours.gradient[i]))) << i;
    }
  });
}

TEST(SliceEntropy, HidesNothingThatIsNotFinite) {
  for (const float bad : {std::nanf(""), -kMasked}) {
    for (const std::int64_t word : {3, 20, 36}) {
      Rows rows = some_rows();
      rows.at(1, word) = bad;
      const Result ours = of_slices(rows, 1);
      EXPECT_FALSE(std::isfinite(ours.loss));
      double sum = 0;
      for (std::int64_t j = 0; j < kVocab; ++j) {
        sum += double{ours.gradient[static_cast<std::size_t>(kVocab + j)]};
      }
      EXPECT_FALSE(std::isfinite(sum)) << bad << " at " << word;
    }
  }
  Rows rows = some_rows();
  for (std::int64_t j = 0; j < kVocab; ++j) rows.at(1, j) = kMasked;
  EXPECT_FALSE(std::isfinite(of_slices(rows, 1).loss));
}

TEST(SliceEntropy, RefusesATargetOutsideTheVocabulary) {
  Rows rows = some_rows();
  rows.targets[1] = kVocab;
  EXPECT_THROW((void)of_slices(rows, 1), Error);
}

}  // namespace
}  // namespace sluice::testing
