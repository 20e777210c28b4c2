// Byte-level byte-pair encoding, independent of the file type.
//
// Text -> added tokens and the rest -> words (split patterns in order) -> bytes of a word, merged
// pair by pair: lowest rank first, leftmost among equals. A word of n bytes costs n log n.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/data/tokenizer/split_pattern.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct BpeMerge {
  std::int32_t left = 0, right = 0;  // ids side by side
  std::int32_t result = 0;           // the id that replaces them
  std::int32_t rank = 0;             // lower merges first; several merges may share one
};

// Result of the file readers (bpe_files.hpp).
struct BpeModel {
  std::vector<std::string> pieces;  // bytes of each id; empty: a hole
  std::vector<BpeMerge> merges;
  std::vector<std::pair<std::string, std::int32_t>> added;  // recognised before splitting
  std::vector<std::string> patterns;
  bool whole_words_first = false;  // a word that is a piece is that piece, whatever the merges say
  std::int32_t end_of_text = 0;
  std::vector<std::int32_t> leading;  // Tokenizer::leading()
  std::string name;
  std::string fingerprint;
};

// Open-addressed map (left, right) -> (rank, result).
class MergeTable {
 public:
  struct Found {
    std::int32_t rank = -1;  // -1: the two do not merge
    std::int32_t result = 0;
  };
  explicit MergeTable(const std::vector<BpeMerge>& merges);
  [[nodiscard]] Found find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Found found;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};  // ids are not negative
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const;
  std::vector<Slot> slots_;
  unsigned shift_ = 0;
};

class BpeTokenizer : public Tokenizer {
 public:
  // Throws ConfigError if one of the 256 bytes has no id or a pattern does not compile, IoError if
  // a pattern is too slow for any text.
  explicit BpeTokenizer(BpeModel model);
  [[nodiscard]] std::int64_t vocab_size() const override;
  [[nodiscard]] std::int32_t end_of_text() const override { return model_.end_of_text; }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] std::span<const std::int32_t> leading() const override { return model_.leading; }
  [[nodiscard]] const std::string& name() const override { return model_.name; }
  [[nodiscard]] const std::string& fingerprint() const override { return model_.fingerprint; }

 private:
  void add_pattern(const std::string& pattern);
  void encode_plain(std::string_view text, SplitBudget& budget,
                    std::vector<std::int32_t>& out) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const;
  void merge_word(std::string_view word, std::vector<std::int32_t>& out) const;
  void merge_long_word(std::string_view word, std::vector<std::int32_t>& out) const;
  // Index into model_.added of the token at the start of `text`; -1 if none.
  [[nodiscard]] std::int64_t added_at(std::string_view text) const;

  BpeModel model_;
  MergeTable merges_;
  std::vector<SplitPattern> patterns_;
  std::unordered_map<std::string_view, std::int32_t> whole_words_;  // views of model_.pieces
  std::array<std::int32_t, 256> id_of_byte_{};
  std::array<std::vector<std::size_t>, 256> added_by_byte_;  // longest first
  std::uint64_t serial_;  // tells the per-thread word caches of different tokenizers apart
};

}  // namespace sluice
