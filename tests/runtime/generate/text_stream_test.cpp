#include "runtime/generate/text_stream.hpp"

#include <gtest/gtest.h>

#include <string>

#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

std::string stream(const std::string& bytes, std::size_t piece) {
  TextStream text;
  std::string all;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::string shown = text.add(bytes.substr(at, piece));
    EXPECT_EQ(valid_utf8_prefix(shown), shown.size());
    all += shown;
  }
  return all + text.finish();
}

TEST(TextStream, ValidTextComesThroughInAnyPieces) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 z\xF4\x8F\xBF\xBF\xED\x9F\xBF";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(stream(text, piece), text);
}

TEST(TextStream, ACharacterIsHeldBackUntilItIsWhole) {
  TextStream text;
  EXPECT_EQ(text.add("x\xF0\x9F"), "x");
  EXPECT_EQ(text.add("\x98"), "");
  EXPECT_EQ(text.add("\x80y"), "\xF0\x9F\x98\x80y");
  EXPECT_EQ(text.finish(), "");
}

TEST(TextStream, BytesThatAreNoTextAreReplaced) {
  for (const std::size_t piece : {1U, 2U, 9U}) {
    EXPECT_EQ(stream("a\xFFz", piece), "a" + kBad + "z");
    EXPECT_EQ(stream("\x80\x80", piece), kBad + kBad);
    EXPECT_EQ(stream("\xE2\x28", piece), kBad + "(");
    EXPECT_EQ(stream("\xE2\x82q", piece), kBad + "q");  // one character cut short is one mistake
    EXPECT_EQ(stream("\xC0\xAF", piece), kBad + kBad);  // overlong
    EXPECT_EQ(stream("\xED\xA0\x80", piece), kBad + kBad + kBad);  // a surrogate
  }
}

TEST(TextStream, WhatIsCutOffAtTheEndIsReplacedOnce) {
  EXPECT_EQ(stream("ab\xF0\x9F\x98", 1), "ab" + kBad);
  EXPECT_EQ(stream("", 1), "");
}

}  // namespace
}  // namespace sluice
