#include "runtime/generate/eval_windows.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice {
namespace {

class Counting final : public TokenSource {
 public:
  explicit Counting(std::int64_t size) : size_(size) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t first, std::span<std::int64_t> out) const override {
    ASSERT_LE(first + static_cast<std::int64_t>(out.size()), size_);
    for (std::int64_t& token : out) token = first++;
  }

 private:
  std::int64_t size_;
};

TEST(EvalWindows, EveryTokenButTheFirstIsPredictedOnce) {
  for (const std::int64_t tokens : {2, 3, 8, 9, 10, 17, 40, 41}) {
    for (const std::int64_t stride : {1, 3, 7, 8}) {
      constexpr std::int64_t kSeq = 8;
      const Counting source(tokens);
      std::map<std::int64_t, int> predicted;
      for (const EvalWindow& window : cut_windows(tokens, kSeq, stride)) {
        std::vector<std::int64_t> row, targets;
        append_window("text", source, window, kSeq, tokens, row, targets);
        ASSERT_EQ(row.size(), 8U);
        ASSERT_EQ(targets.size(), 8U);
        for (std::size_t i = 0; i < targets.size(); ++i) {
          if (targets[i] == kIgnoreTarget) continue;
          EXPECT_EQ(targets[i], row[i] + 1);
          ++predicted[targets[i]];
          // Context: all there is, or what the windows before leave.
          EXPECT_GE(static_cast<std::int64_t>(i) + 1,
                    std::min<std::int64_t>(targets[i], kSeq - stride + 1));
        }
      }
      EXPECT_EQ(predicted.size(), static_cast<std::size_t>(tokens - 1));
      for (const auto& [token, times] : predicted) EXPECT_EQ(times, 1) << token;
    }
  }
}

// A token that begins a document has no context: no window predicts it.
TEST(EvalWindows, DocumentsAreToldApartInEveryWindow) {
  constexpr std::int64_t kTokens = 21, kSeq = 8;
  const auto all = std::make_shared<Counting>(kTokens);
  const ChainedSource source({{all, {0, 5}}, {all, {5, 8}}, {all, {8, 17}}, {all, {17, 21}}});
  for (const std::int64_t stride : {1, 3, 8}) {
    std::multiset<std::int64_t> predicted;
    for (const EvalWindow& window : cut_windows(kTokens, kSeq, stride)) {
      std::vector<std::int64_t> row, targets;
      std::vector<std::int32_t> ends, expected{0};
      append_window("text", source, window, kSeq, kTokens, row, targets, &ends);
      for (const std::int64_t start : {5, 8, 17}) {
        const std::int64_t end = start - window.first;
        if (end > 0 && end <= window.length && end < kSeq) {
          expected.push_back(static_cast<std::int32_t>(end));
        }
      }
      expected.push_back(kSeq);
      EXPECT_EQ(ends, expected) << window.first;
      for (const std::int64_t target : targets) {
        if (target != kIgnoreTarget) predicted.insert(target);
      }
    }
    std::multiset<std::int64_t> expected;
    for (std::int64_t token = 1; token < kTokens; ++token) {
      if (token != 5 && token != 8 && token != 17) expected.insert(token);
    }
    EXPECT_EQ(predicted, expected) << stride;
  }
}

TEST(EvalWindows, AStreamWithoutAPredictionHasNone) {
  EXPECT_TRUE(cut_windows(0, 8, 8).empty());
  EXPECT_TRUE(cut_windows(1, 8, 8).empty());
}

TEST(EvalWindows, ATokenOutsideTheVocabularyIsNamed) {
  std::vector<std::int64_t> row, targets;
  try {
    append_window("less.txt", Counting(9), {.first = 2, .context = 0, .length = 4}, 4, 6, row,
                  targets);
    FAIL() << "token 6 was taken";
  } catch (const IoError& error) {
    EXPECT_TRUE(
        std::string(error.what())
            .starts_with("less.txt: token 6 is 6, outside the model's vocabulary of 6; its tokens"))
        << error.what();
  }
}

}  // namespace
}  // namespace sluice
