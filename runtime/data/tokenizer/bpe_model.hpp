// Byte-level byte-pair encoding as the file readers give it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/folder_tokens.hpp"
#include "runtime/data/tokenizer/model/merge_table.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct BpeModel {
  std::vector<std::string> pieces;  // bytes of each id; empty: a hole
  std::vector<BpeMerge> merges;
  std::string pattern;             // cuts the text into words; empty: the text is one word
  bool whole_words_first = false;  // a word that is a piece is that piece, whatever the merges say
  EndOfText end;
  std::vector<AddedToken> added;  // Tokenizer::chat_tokens()
  bool split_special = false;     // Tokenizer::splits_special()
  std::string name;
  std::string fingerprint;
};

// Throws ConfigError if one of the 256 bytes has no id.
[[nodiscard]] std::unique_ptr<Tokenizer> bpe_tokenizer(BpeModel model);

}  // namespace sluice
