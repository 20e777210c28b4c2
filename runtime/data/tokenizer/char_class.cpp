#include "runtime/data/tokenizer/char_class.hpp"

#include <string>
#include <vector>

#include "runtime/data/tokenizer/split_pattern.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

// Outside these ranges Unicode 14 has no letter, number, mark or space.
constexpr std::pair<char32_t, char32_t> kUsed[] = {
    {0, 0xD800}, {0xE000, 0x33480}, {0xE0000, 0xE0200}};

void mark_class(CharClasses& classes, const std::string& text, const char* pattern,
                std::uint8_t bits) {
  std::vector<SplitPart> parts;
  SplitBudget budget(text.size());
  SplitPattern(pattern).parts(text, parts, budget);
  for (const SplitPart& part : parts) {
    std::string_view rest = part.is_match ? part.text : std::string_view();
    while (!rest.empty()) {
      std::size_t length = 0;
      std::uint8_t& entry = classes.of_code[first_code_point(rest, length)];
      entry = static_cast<std::uint8_t>(entry | bits);
      rest.remove_prefix(length);
    }
  }
}

void fill(CharClasses& classes) {
  std::string text;
  for (const auto& [first, end] : kUsed) {
    for (char32_t code = first; code < end; ++code) append_utf8(code, text);
  }
  mark_class(classes, text, R"(\p{L}+)", kLetter);
  mark_class(classes, text, R"(\p{N}+)", kNumber);
  mark_class(classes, text, R"(\s+)", kSpace);
  mark_class(classes, text, R"([\r\n]+)", kNewline);
  mark_class(classes, text, R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)", kHead);
  mark_class(classes, text, R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+)", kTail);
  for (std::uint8_t& entry : classes.of_code) {
    if ((entry & (kLetter | kNumber | kSpace)) == 0) {
      entry = static_cast<std::uint8_t>(entry | kOther);
    }
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    classes.of_byte[byte] = byte < 0x80 ? classes.of_code[byte] : std::uint8_t{kWide};
  }
}

}  // namespace

const CharClasses& char_classes() {
  static CharClasses classes;
  static const bool kFilled = (fill(classes), true);
  (void)kFilled;
  return classes;
}

}  // namespace sluice
