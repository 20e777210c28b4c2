// From the words of a text to ids.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/data/tokenizer/word_rule.hpp"

namespace sluice {

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of `word`. REQUIRES: not empty. Thread-safe.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& out) const = 0;
  // Appends the ids of all words of `text`. REQUIRES: valid UTF-8, a rule other than kNone.
  virtual void encode_text(std::string_view text, WordRule rule,
                           std::vector<std::int32_t>& out) const {
    for_each_word(rule, text, [&](std::string_view word) { encode(word, out); });
  }
};

}  // namespace sluice
