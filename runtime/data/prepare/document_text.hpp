// The documents of a .bin/.idx pair as text again: `sluice data cat`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct TextRange {
  std::int64_t first = 0;  // document, from 0
  std::int64_t count = 0;  // 0: all that follow
  bool raw = false;        // false: one JSON object a line, {"text": ...}
};

// Calls `write` with the text of each document in turn. An end-of-text at the end of a document is
// left out, so that prepare and cat are each other's reverse. In JSON, bytes that are not UTF-8
// become U+FFFD. Throws ConfigError if `first` is behind the last document, IoError if a token is
// outside the vocabulary or the file is damaged.
void write_document_texts(const std::string& prefix, const Tokenizer& tokenizer,
                          const TextRange& range,
                          const std::function<void(std::string_view text)>& write);

// {"text": "..."} and a line end.
[[nodiscard]] std::string json_text_line(std::string_view text);

}  // namespace sluice
