// The hand-written splitters against PCRE2 with the same pattern.
#include "runtime/data/tokenizer/word_rule.hpp"

#include "runtime/data/tokenizer/split_pattern.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

const char* const kLlama3File =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2File =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kGpt2File =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Characters of every class, alone and in runs, so that every alternative follows every other.
std::string mixed_text(std::size_t parts, unsigned seed) {
  static const std::vector<std::string> kParts{
      "'",      "s",          "S",          "\u017f", "re",         "VE",     "lL",     "a",
      "B",      "x",          "Hello",      "ABC",    "1",          "23",     "\u0663", "\u00b2",
      " ",      "  ",         "\t",         "\n",     "\r",         "\r\n",   "\u00a0", "\u3000",
      "\u0085", "\u180e",     ".",          "/",      "//",         "!?",     "_",      "\u0301",
      "\u0302", "\u00e9",     "\u00c9",     "\u01c5", "\u02b0",     "\u65e5", "\u3042", "\u0939",
      "\u093f", "\U0001F44D", "\U0001D400", "\u200d", "\U000E0100", "\u2028", "\u00ad"};
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < parts; ++i) text += kParts[random() % kParts.size()];
  return text;
}

TEST(WordRule, WordsAreThoseOfPcre2) {
  const std::pair<const char*, WordRule> kRules[] = {
      {kGpt2Pattern, WordRule::kGpt2},     {kGpt2File, WordRule::kGpt2},
      {kCl100kPattern, WordRule::kLlama3}, {kLlama3File, WordRule::kLlama3},
      {kQwen2File, WordRule::kQwen2},      {kO200kPattern, WordRule::kO200k}};
  for (const auto& [pattern, rule] : kRules) {
    const SplitPattern compiled(pattern);
    ASSERT_EQ(compiled.rule(), rule) << pattern;
    for (unsigned seed = 0; seed < 3000; ++seed) {
      const std::string text = mixed_text(1 + seed % 40, seed);
      std::vector<SplitPart> parts;
      SplitBudget budget(text.size());
      compiled.parts(text, parts, budget);
      std::vector<std::string_view> expected, words;
      for (const SplitPart& part : parts) expected.push_back(part.text);
      compiled.split(text, words);
      ASSERT_EQ(words, expected) << pattern << " seed " << seed;
    }
  }
}

TEST(WordRule, OtherPatternsAreNotTakenForKnownOnes) {
  EXPECT_EQ(SplitPattern(std::string(kGpt2Pattern) + "|x").rule(), WordRule::kNone);
  EXPECT_EQ(SplitPattern(R"(\s+)").rule(), WordRule::kNone);
}

// The table holds some ranges of code points only.
TEST(WordRule, TheClassTableLeavesOutNoCodePoint) {
  const CharClasses& classes = char_classes();
  std::string text;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code == 0xD800) code = 0xE000;
    append_utf8(code, text);
  }
  std::size_t marked = 0;
  for (const std::uint8_t kind : classes.of_code) {
    marked += (kind & (kLetter | kNumber | kSpace | kHead | kTail)) != 0 ? 1 : 0;
  }
  std::vector<SplitPart> parts;
  SplitBudget budget(text.size());
  SplitPattern(R"([\p{L}\p{N}\p{M}\s]+)").parts(text, parts, budget);
  std::size_t expected = 0;
  for (const SplitPart& part : parts) {
    for (const char byte : part.is_match ? part.text : std::string_view()) {
      expected += (static_cast<std::uint8_t>(byte) & 0xC0U) != 0x80 ? 1 : 0;
    }
  }
  EXPECT_EQ(marked, expected);
}

}  // namespace
}  // namespace sluice::testing
