#include "runtime/data/tokenizer/model/byte_bpe.hpp"

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {

ByteBpe::ByteBpe(const std::vector<std::string>& pieces, const std::vector<BpeMerge>& merges,
                 const Options& options)
    : merges_(merges) {
  id_of_byte_.fill(-1);
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const std::string& piece = pieces[id];
    const auto number = static_cast<std::int32_t>(id);
    if (piece.size() == 1 && id_of_byte_[static_cast<std::uint8_t>(piece[0])] < 0) {
      id_of_byte_[static_cast<std::uint8_t>(piece[0])] = number;
    }
  }
  if (options.whole_words_first) {
    std::vector<std::string> words = pieces;
    nth(words, options.end_of_text).clear();
    whole_words_ = PieceTable(words);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (id_of_byte_[byte] < 0) {
      throw ConfigError(options.name + ": byte " + std::to_string(byte) +
                        " has no id; a byte-level vocabulary has all 256");
    }
  }
}

void ByteBpe::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
  if (const std::int32_t whole = whole_words_.find(word); whole >= 0) return out.assign(1, whole);
  out.resize(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    out[i] = id_of_byte_[static_cast<std::uint8_t>(word[i])];
  }
  out.resize(merges_.merge(out));
}

}  // namespace sluice
