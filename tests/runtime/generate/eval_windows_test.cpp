#include "runtime/generate/eval_windows.hpp"

#include <gtest/gtest.h>

#include <map>

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
