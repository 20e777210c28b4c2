// Byte-pair encoding of words whose symbols begin as bytes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/model/cached_words.hpp"
#include "runtime/data/tokenizer/model/merge_table.hpp"
#include "runtime/data/tokenizer/model/piece_table.hpp"

namespace sluice {

class ByteBpe : public CachedWords {
 public:
  struct Options {
    std::string name;  // for errors
    bool whole_words_first =
        false;                     // a word that is a piece is that piece, whatever the merges say
    std::int32_t end_of_text = 0;  // is no whole word
  };
  // Throws ConfigError if one of the 256 bytes has no id. `pieces`: bytes of each id; empty: a
  // hole.
  ByteBpe(const std::vector<std::string>& pieces, const std::vector<BpeMerge>& merges,
          const Options& options);

 protected:
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const override;

 private:
  MergeTable merges_;
  PieceTable whole_words_;
  std::array<std::int32_t, 256> id_of_byte_{};
};

}  // namespace sluice
