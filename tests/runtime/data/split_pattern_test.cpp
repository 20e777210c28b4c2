#include "runtime/data/tokenizer/split_pattern.hpp"

#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> split(const char* pattern, const std::string& text) {
  std::vector<std::string_view> words;
  SplitPattern(pattern).split(text, words);
  return {words.begin(), words.end()};
}

TEST(SplitPatternGpt2, ContractionsAreLowerCaseOnly) {
  EXPECT_THAT(split(kGpt2Pattern, "don't I'll WE'LL it's"),
              ElementsAre("don", "'t", " I", "'ll", " WE", "'", "LL", " it", "'s"));
}

TEST(SplitPatternGpt2, ARunOfSpacesLeavesItsLastToTheWord) {
  EXPECT_THAT(split(kGpt2Pattern, "a   b \t c  "), ElementsAre("a", "  ", " b", " \t", " c", "  "));
  EXPECT_THAT(split(kGpt2Pattern, "a\n\nb\n"), ElementsAre("a", "\n", "\n", "b", "\n"));
  EXPECT_THAT(split(kGpt2Pattern, "\u00a0\u00a0x"), ElementsAre("\u00a0", "\u00a0", "x"));
}

TEST(SplitPatternGpt2, LettersDigitsAndOthersOfUnicode) {
  EXPECT_THAT(
      split(kGpt2Pattern, "na\u00efve \u0661\u0662x \u65e5\u672c!? 3.14"),
      ElementsAre("na\u00efve", " \u0661\u0662", "x", " \u65e5\u672c", "!?", " 3", ".", "14"));
  EXPECT_THAT(split(kGpt2Pattern, "e\u0301 \u00bd"), ElementsAre("e", "\u0301", " \u00bd"));
  // No longer white space in Unicode, though PCRE2 says so.
  EXPECT_THAT(split(kGpt2Pattern, " \u180e!"), ElementsAre(" \u180e!"));
}

TEST(SplitPatternCl100k, DigitsByThreesAndCaseBlindContractions) {
  EXPECT_THAT(split(kCl100kPattern, "1234567 WE'LL (x) a!\n\nb \n c"),
              ElementsAre("123", "456", "7", " WE", "'LL", " (", "x", ")", " a", "!\n\n", "b",
                          " \n", " c"));
}

TEST(SplitPatternO200k, WordsEndWhereCapitalsBegin) {
  EXPECT_THAT(split(kO200kPattern, "HelloWorld DON'T //\n/x"),
              ElementsAre("Hello", "World", " DON'T", " //\n/", "x"));
}

TEST(SplitPattern, NothingIsLostAndGapsAreWords) {
  EXPECT_THAT(split("b+", "abbcb"), ElementsAre("a", "bb", "c", "b"));
  EXPECT_THAT(split("x*", "axxb"), ElementsAre("a", "xx", "b"));  // empty matches do not count
  EXPECT_TRUE(split(kGpt2Pattern, "").empty());
  EXPECT_THAT(message_of<ConfigError>([] { SplitPattern("(a"); }), HasSubstr("'(a'"));
}

TEST(SplitPattern, ExponentialTimeIsSeenBeforeAnyText) {
  for (const char* pattern :
       {"(a+)+$", "( |  )+x|(?:\\s+)+y$", "(?:\\w+\\s?)+$", "(\\p{N}|\\d\\d)+$"}) {
    EXPECT_THAT(message_of<SplitError>([&] { SplitPattern{pattern}; }),
                HasSubstr("needs exponential time on a short run of "))
        << pattern;
  }
  const std::string padded = "(a+)+$|" + std::string(200, 'q');
  EXPECT_THAT(message_of<SplitError>([&] { SplitPattern{padded}; }),
              HasSubstr("qqq...' needs"));  // not all of it
}

TEST(SplitPattern, AMatchOfTooManyStepsNamesItsPlace) {
  const SplitPattern pattern("(x+)+$|good");
  const std::string text = "good good" + std::string(64, 'x') + "!";
  std::vector<std::string_view> words;
  try {
    pattern.split(text, words);
    FAIL() << "nothing was thrown";
  } catch (const SplitError& error) {
    EXPECT_EQ(error.at() - text.data(), 9);
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_THAT(error.what(), HasSubstr("'(x+)+$|good' ends with: match limit exceeded"));
  }
}

// Each match looks at all that is left: quadratic.
TEST(SplitPattern, ManySlowMatchesRunOutOfTime) {
  const SplitPattern pattern(".*(?=z)|.");
  EXPECT_THAT(message_of<SplitError>([&] {
                std::vector<std::string_view> words;
                pattern.split(std::string(300000, 'a'), words);
              }),
              HasSubstr("takes too much time"));
}

TEST(SplitPattern, AWordOfMillionsIsWithinTheLimits) {
  for (const char* pattern : {kGpt2Pattern, kCl100kPattern, kO200kPattern}) {
    for (const char* part : {"A", "a", "\u65e5", "!", " "}) {
      std::string text;
      while (text.size() < 3'000'000) text += part;
      EXPECT_LE(split(pattern, text + "x").size(), 3U) << pattern << part;
    }
  }
}

}  // namespace
}  // namespace sluice::testing
