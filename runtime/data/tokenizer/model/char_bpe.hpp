// Byte-pair encoding of words whose symbols begin as characters, as in Llama 2 and Gemma.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/model/cached_words.hpp"
#include "runtime/data/tokenizer/model/merge_table.hpp"
#include "runtime/data/tokenizer/model/piece_table.hpp"

namespace sluice {

class CharBpe : public CachedWords {
 public:
  struct Options {
    std::int32_t unknown = -1;       // the id of characters without a piece; -1: they are left out
    bool fuse_unknown = false;       // one id for a run of them
    bool byte_fallback = false;      // pieces <0x00> to <0xFF> instead, where all are there
    bool whole_words_first = false;  // a word that is a piece is that piece
  };
  CharBpe(const std::vector<std::string>& pieces, const std::vector<BpeMerge>& merges,
          const Options& options);
  // A long text without words is cut at marks (WordRule::kMarked) if no merge reaches over a cut.
  void encode(std::string_view word, std::vector<std::int32_t>& out) const override;

 protected:
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const override;

 private:
  [[nodiscard]] bool can_cut(const std::vector<std::string>& pieces,
                             const std::vector<BpeMerge>& merges) const;
  // False: a byte has no piece.
  [[nodiscard]] bool append_bytes(std::string_view character, std::vector<std::int32_t>& out) const;

  Options options_;
  PieceTable pieces_;
  MergeTable merges_;
  std::array<std::int32_t, 256> id_of_byte_{};
  bool cuts_ = false;
};

// The ids of <0x00> to <0xFF>; -1: none.
[[nodiscard]] std::array<std::int32_t, 256> byte_pieces(const PieceTable& pieces);
// "<0x0A>"
[[nodiscard]] std::string byte_piece_name(std::uint8_t byte);

}  // namespace sluice
