// A tokenizer as a chain: added tokens, normaliser, words, model; and back. The parts come from the
// readers of the file types.
//
// text -> added tokens | sections -> normalised sections -> added tokens | text -> words -> ids
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/added_tokens.hpp"
#include "runtime/data/tokenizer/folder_tokens.hpp"
#include "runtime/data/tokenizer/model/word_model.hpp"
#include "runtime/data/tokenizer/normalizer.hpp"
#include "runtime/data/tokenizer/piece_decoder.hpp"
#include "runtime/data/tokenizer/pre_tokenizer.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct TokenizerParts {
  std::string name, fingerprint;
  std::vector<std::string> pieces;  // for the decoder, by id; empty: a hole
  EndOfText end;
  std::int32_t unknown = -1;          // Tokenizer::kind(); -1: none
  std::vector<std::int32_t> leading;  // Tokenizer::leading()
  std::vector<AddedToken> added;
  std::vector<AddedToken> chat;  // Tokenizer::chat_tokens()
  bool split_special = false;    // Tokenizer::splits_special()
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PieceDecoder decoder;
  // The pieces are bytes, and a byte that is no UTF-8 is a word. Else such bytes become U+FFFD.
  bool byte_level = false;
  std::unique_ptr<WordModel> words;
};

class TextTokenizer : public Tokenizer {
 public:
  explicit TextTokenizer(TokenizerParts parts);
  [[nodiscard]] std::int64_t vocab_size() const override;
  [[nodiscard]] std::int32_t end_of_text() const override { return parts_.end.id; }
  [[nodiscard]] bool end_is_new() const override { return parts_.end.is_new; }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::vector<std::int32_t> encode_continued(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] std::string decode_continued(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] TokenKind kind(std::int32_t id) const override;
  [[nodiscard]] std::span<const std::int32_t> leading() const override { return parts_.leading; }
  [[nodiscard]] std::span<const AddedToken> chat_tokens() const override { return parts_.chat; }
  [[nodiscard]] bool splits_special() const override { return parts_.split_special; }
  [[nodiscard]] const std::string& name() const override { return parts_.name; }
  [[nodiscard]] const std::string& fingerprint() const override { return parts_.fingerprint; }
  [[nodiscard]] std::string document_fingerprint() const override {
    return parts_.fingerprint + parts_.end.mark + (parts_.split_special ? "+split" : "");
  }

 private:
  using Ids = std::vector<std::int32_t>;
  [[nodiscard]] Ids encode_part(std::string_view text, bool continued) const;
  void encode_section(Word section, SplitBudget& budget, Ids& out) const;
  void encode_plain(Word text, SplitBudget& budget, Ids& out) const;
  void encode_valid(Word text, SplitBudget& budget, Ids& out) const;
  [[nodiscard]] std::string normalised(const Word& section, SplitBudget& budget) const;
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> ids, bool continued) const;
  void find_normalized_tokens();

  TokenizerParts parts_;
  AddedTokens raw_, in_normalised_;
  WordRule rule_;  // of the only step of the pre-tokeniser
};

}  // namespace sluice
