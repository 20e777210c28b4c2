#include "runtime/generate/terminal_text.hpp"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(TerminalText, ControlsAreShownAndTextStays) {
  const std::string text = "a\tb\nc \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  EXPECT_EQ(escape_controls(text), text);
  EXPECT_EQ(escape_controls("\x1b[31mred\x07\r"), "\\x1b[31mred\\x07\\x0d");
  EXPECT_EQ(escape_controls(std::string("\0\x7F", 2)), "\\x00\\x7f");
  EXPECT_EQ(escape_controls("\xC2\x9B"
                            "2J"),
            "\\x9b2J");  // C1 as a character
  EXPECT_EQ(escape_controls("\x9B"
                            "2J"),
            "\\x9b2J");                                // and as a byte
  EXPECT_EQ(escape_controls("\xFF\xE9"), "\xFF\xE9");  // no UTF-8, and no control either
}

}  // namespace
}  // namespace sluice
