// Words, lines and characters of a text, as the filters count them. Texts are valid UTF-8.
//
// A word is a run of letters, marks and digits of any script; an apostrophe between two letters
// belongs to the word. Each ideograph and kana is a word. Every other run of characters that are no
// white space is a word of symbols. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct Word {
  std::string_view text;
  std::size_t characters = 0;
  bool symbols = false;  // no letter, mark or digit
  bool letter = false;   // holds a letter
};

[[nodiscard]] std::vector<Word> split_words(std::string_view text);

// Lines without their ends (\n or \r\n). A text that ends with a line end has no empty line behind.
[[nodiscard]] std::vector<std::string_view> split_lines(std::string_view text);

[[nodiscard]] std::size_t count_characters(std::string_view text);
[[nodiscard]] std::string_view trim(std::string_view text);  // white space of any script
[[nodiscard]] std::string to_lower(std::string_view text);   // character by character
// The last character; 0 of an empty text.
[[nodiscard]] char32_t last_character(std::string_view text);

[[nodiscard]] bool is_white_space(char32_t c);
[[nodiscard]] bool is_letter(char32_t c);
[[nodiscard]] bool is_word_character(char32_t c);  // letter, mark, digit

}  // namespace sluice
