// The Unicode forms against utf8proc_map, which has the same results in quadratic time.
#include "runtime/data/tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

struct Form {
  UnicodeForm form;
  int options;
};

constexpr std::array kForms{
    Form{UnicodeForm::kNfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    Form{UnicodeForm::kNfd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    Form{UnicodeForm::kNfkc, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    Form{UnicodeForm::kNfkd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

std::string mapped(const std::string& text, const Form& form) {
  utf8proc_uint8_t* made = nullptr;
  const auto bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &made,
                   static_cast<utf8proc_option_t>(form.options));
  EXPECT_GE(bytes, 0);
  std::string result(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
  std::free(made);
  return result;
}

TEST(UnicodeForms, AreThoseOfUtf8proc) {
  // Every code point, alone and between marks of other classes.
  for (char32_t code = 1; code < 0x110000; code += code < 0x30000 ? 1 : 97) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(code, text);
    text = text + "a\u0301" + text + "\u0323" + text;
    for (const Form& form : kForms) {
      ASSERT_EQ(in_form(text, form.form), mapped(text, form)) << std::hex << std::uint32_t{code};
    }
  }
  // Marks of all classes, letters that compose, Hangul, and any other character.
  std::mt19937 random(7);
  const auto below = [&random](std::uint32_t most) {
    return static_cast<std::uint32_t>(random()) % most;
  };
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::uint32_t length = below(24); length > 0; --length) {
      const std::array<char32_t, 8> kinds{
          0x300 + below(0x70), 0x300 + below(0x70), U'A' + below(58),    0x591 + below(0x80),
          0x1100 + below(256), 0x900 + below(0x80), 0x1D15E + below(24), 0xA0 + below(0x2F00)};
      append_utf8(kinds[below(8)], text);
    }
    for (const Form& form : kForms) {
      ASSERT_EQ(in_form(text, form.form), mapped(text, form)) << round << ": " << text;
    }
  }
}

// Exchanging neighbours takes 12 s for half of these marks, and four times that for all.
TEST(UnicodeForms, ALongRunOfMarksIsSortedInLittleTime) {
  constexpr std::size_t kPairs = 80'000;
  std::string text = "a", sorted = "a";
  for (std::size_t i = 0; i < kPairs; ++i) text += "\u0301\u0323";
  for (std::size_t i = 0; i < kPairs; ++i) sorted += "\u0323";
  for (std::size_t i = 0; i < kPairs; ++i) sorted += "\u0301";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(in_form(text, UnicodeForm::kNfd), sorted);
  EXPECT_EQ(in_form(text, UnicodeForm::kNfkd), sorted);
  // U+1EA1 takes the first mark below; a second one blocks nothing of another class.
  const std::string composed = "\u1EA1" + sorted.substr(3);
  EXPECT_EQ(in_form(text, UnicodeForm::kNfc), composed);
  EXPECT_EQ(in_form(text, UnicodeForm::kNfkc), composed);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace sluice::testing
