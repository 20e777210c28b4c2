#include "runtime/data/tokenizer/model/char_bpe.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {

std::string byte_piece_name(std::uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4U], kDigits[byte & 15U], '>'};
}

std::array<std::int32_t, 256> byte_pieces(const PieceTable& pieces) {
  std::array<std::int32_t, 256> ids{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    ids[byte] = pieces.find(byte_piece_name(static_cast<std::uint8_t>(byte)));
  }
  return ids;
}

CharBpe::CharBpe(const std::vector<std::string>& pieces, const std::vector<BpeMerge>& merges,
                 const Options& options)
    : options_(options), pieces_(pieces), merges_(merges), id_of_byte_(byte_pieces(pieces_)) {
  cuts_ = can_cut(pieces, merges);
}

bool CharBpe::can_cut(const std::vector<std::string>& pieces,
                      const std::vector<BpeMerge>& merges) const {
  const auto crosses = [](std::string_view left, std::string_view right) {
    return right.starts_with(word_rule::kMark) && !left.ends_with(word_rule::kMark);
  };
  if (pieces_.find(word_rule::kMark) < 0) return false;  // a run of unknown characters may cross
  for (const BpeMerge& merge : merges) {
    if (crosses(nth(pieces, merge.left), nth(pieces, merge.right))) return false;
  }
  return !options_.whole_words_first ||
         std::none_of(pieces.begin(), pieces.end(), [](const auto& p) {
           return !p.empty() &&
                  word_rule::marked_end(p.data(), p.data() + p.size()) != p.data() + p.size();
         });
}

void CharBpe::encode(std::string_view word, std::vector<std::int32_t>& out) const {
  if (cuts_) return encode_text(word, WordRule::kMarked, out);
  CachedWords::encode(word, out);
}

bool CharBpe::append_bytes(std::string_view character, std::vector<std::int32_t>& out) const {
  const auto id_of = [&](char byte) { return id_of_byte_[static_cast<std::uint8_t>(byte)]; };
  for (const char byte : character) {
    if (id_of(byte) < 0) return false;
  }
  for (const char byte : character) out.push_back(id_of(byte));
  return true;
}

void CharBpe::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
  out.clear();
  if (options_.whole_words_first) {
    if (const std::int32_t whole = pieces_.find(word); whole >= 0) return out.assign(1, whole);
  }
  bool pending = false;  // an unknown id that a next unknown character may join
  const auto settle = [&] {
    if (pending) out.push_back(options_.unknown);
    pending = false;
  };
  while (!word.empty()) {
    std::size_t length = 0;
    (void)first_code_point(word, length);
    const std::string_view character = word.substr(0, length);
    word.remove_prefix(length);
    if (const std::int32_t id = pieces_.find(character); id >= 0) {
      settle();
      out.push_back(id);
    } else if (!(options_.byte_fallback && append_bytes(character, out)) && options_.unknown >= 0) {
      if (!options_.fuse_unknown) settle();
      pending = true;
    }
  }
  settle();
  out.resize(merges_.merge(out));
}

}  // namespace sluice
