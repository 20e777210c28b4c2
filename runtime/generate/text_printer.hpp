// Text on standard output, token by token, in whole characters. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/generate/text_stream.hpp"

namespace sluice {

class TextPrinter {
 public:
  struct Options {
    bool prints = true;    // false: the text is kept and not printed
    bool escapes = false;  // control characters are escaped, since a terminal would obey them
  };
  TextPrinter(const Tokenizer& tokenizer, const Options& options)
      : tokenizer_(tokenizer), options_(options) {}

  void prompt(const std::string& text) const { print(text); }
  void token(std::int32_t id);
  // Ends the text and its line.
  void finish();
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void print(const std::string& part) const;

  const Tokenizer& tokenizer_;
  const Options options_;
  TextStream stream_;
  std::string text_;
};

// Whether standard output is a pipe whose reader has ended, as `head` does.
[[nodiscard]] bool output_has_no_reader();

}  // namespace sluice
