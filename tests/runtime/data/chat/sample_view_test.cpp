#include "runtime/data/chat/sample_view.hpp"

#include "tests/runtime/data/chat/chat_testing.hpp"

namespace sluice::testing {
namespace {

LearnedTokens byte_sample(const std::string& text, std::size_t learned_from) {
  LearnedTokens sample;
  for (std::size_t i = 0; i < text.size(); ++i) {
    sample.ids.push_back(static_cast<unsigned char>(text[i]));
    sample.learned.push_back(i >= learned_from);
  }
  return sample;
}

TEST(SampleView, ColoursContextAndLearnedText) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(show_sample(*bytes, byte_sample("q?a!", 2), 3, {}),
            "sample 3: 4 tokens, 2 learned\n\033[90mq?\033[0m\033[32ma!\033[0m\n");
  EXPECT_EQ(show_sample(*bytes, byte_sample("q?a!", 2), 3, {.color = false}),
            "sample 3: 4 tokens, 2 learned\nq?[[a!]]\n");
}

TEST(SampleView, ControlCharactersMoveNoCursor) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(show_sample(*bytes,
                        byte_sample("a\033[2J\r\x7F\xFF\xC2\x9B"
                                    "b",
                                    99),
                        1, {.color = false}),
            "sample 1: 11 tokens, 0 learned\na\u241B[2J\u240D\u2421\uFFFD\uFFFDb\n");
}

TEST(SampleView, ALongSampleSaysHowMuchIsLeft) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(show_sample(*bytes, byte_sample("abcdef", 0), 1, {.color = false, .most_tokens = 2}),
            "sample 1: 6 tokens, 6 learned\n[[ab]]\n... 4 more tokens\n");
}

TEST(SampleView, WordsKeepTheirSpaces) {
  const auto tokenizer =
      make_tokenizer(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/tokenizers/llama2.json");
  LearnedTokens sample{tokenizer->encode("the end of"), {}};
  sample.learned.resize(sample.ids.size());
  EXPECT_THAT(show_sample(*tokenizer, sample, 1, {.color = false}),
              ::testing::HasSubstr("\nthe end of\n"));
}

TEST(SampleView, ACharacterBelongsToItsFirstToken) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(show_sample(*bytes, byte_sample("\u00e9x", 1), 1, {.color = false}),
            "sample 1: 3 tokens, 2 learned\n\u00e9[[x]]\n");
}

}  // namespace
}  // namespace sluice::testing
