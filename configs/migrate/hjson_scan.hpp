// Characters of Hjson: white space, comments, the three kinds of text, numbers. The base of the
// reader. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "configs/migrate/hjson_reader.hpp"

namespace sluice::migrate {

// Ends the reading at the first syntax error.
struct HjsonSyntaxError {
  std::size_t at;  // byte
  std::string what;
};

// True for a character that structures a document.
[[nodiscard]] bool is_punctuator(char c);

class HjsonScan {
 public:
  explicit HjsonScan(std::string_view text) : text_(text) {}

  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool ended() const { return at_ >= text_.size(); }
  // The current character; '\0' at the end.
  [[nodiscard]] char peek(std::size_t ahead = 0) const;
  // "'x'" for a message, or "the end of the text".
  [[nodiscard]] std::string found() const;
  void advance(std::size_t count = 1) { at_ += count; }

  void skip_space_and_comments();
  // Text between " or '. REQUIRES: the current character is the opening quote.
  [[nodiscard]] std::string quoted_text();
  // Text between '''. Takes white space from the start of each line up to the column of the
  // opening quote, as Hjson defines.
  [[nodiscard]] std::string multiline_text();
  // A key with or without quotes.
  [[nodiscard]] std::string key();
  // true, false, null, a number, or text to the end of the line.
  [[nodiscard]] HjsonNode plain_value();

 private:
  void escape(std::string& to, std::size_t opening);
  [[nodiscard]] unsigned hex4(std::size_t escape_at);
  void skip_indent(std::size_t most);
  [[nodiscard]] bool value_ends(std::size_t at) const;
  [[nodiscard]] std::size_t after_blanks(std::size_t at) const;
  [[nodiscard]] bool word(std::string_view expected);
  [[nodiscard]] std::size_t number_end() const;

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace sluice::migrate
