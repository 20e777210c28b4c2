#include "runtime/data/tokenizer/sentencepiece_file.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"
#include "runtime/data/tokenizer/model/char_bpe.hpp"
#include "runtime/data/tokenizer/model/unigram.hpp"
#include "runtime/data/tokenizer/text_tokenizer.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

// Numbers of ModelProto.SentencePiece.Type and TrainerSpec.ModelType.
enum PieceType : std::uint64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
enum ModelType : std::uint64_t { kUnigram = 1, kBpe = 2 };

struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;      // of a number
  std::string_view bytes = {};  // of a string or message
};

// The fields of one message.
class Message {
 public:
  Message(const std::string& path, std::string_view bytes) : path_(path), rest_(bytes) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    field = {static_cast<std::uint32_t>(tag >> 3U)};
    switch (tag & 7U) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2: {
        const std::uint64_t size = varint();
        if (size > rest_.size()) fail();
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        break;
      }
      case 5:
        field.value = fixed(4);
        break;
      default:
        fail();
    }
    return true;
  }

 private:
  [[noreturn]] void fail() const {
    throw IoError(path_ + " is no SentencePiece model, or is damaged: a field is not complete",
                  path_);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) fail();
      const auto byte = static_cast<std::uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  std::uint64_t fixed(std::size_t bytes) {
    if (rest_.size() < bytes) fail();
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value |= std::uint64_t{static_cast<std::uint8_t>(rest_[i])} << (8 * i);
    }
    rest_.remove_prefix(bytes);
    return value;
  }
  const std::string& path_;
  std::string_view rest_;
};

struct Piece {
  std::string text;
  float score = 0;
  std::uint64_t type = kNormal;
};

struct Model {
  std::vector<Piece> pieces;
  std::uint64_t type = kUnigram;
  bool byte_fallback = false;
  SentencePieceRules rules;
  std::string charsmap;
};

class Reader {
 public:
  Reader(const std::string& path, std::string_view bytes) : path_(path) { read(bytes); }

  [[nodiscard]] TokenizerParts parts(const FolderTokens& folder) {
    check();
    TokenizerParts parts;
    parts.name = "sentencepiece (" + path_ + ")";
    for (const Piece& piece : model_.pieces) parts.pieces.push_back(piece.text);
    parts.words = model_.type == kBpe ? bpe(parts) : unigram(parts);
    parts.end = settle_special_tokens(parts.pieces, folder, true, [this](std::int32_t id) {
      const auto index = static_cast<std::size_t>(id);
      if (index >= model_.pieces.size()) return true;
      const std::uint64_t type = model_.pieces[index].type;
      return type == kControl || type == kUserDefined;
    });
    parts.chat = chat_tokens(folder, parts.pieces);
    parts.unknown = unknown_;
    std::unique_ptr<Charsmap> charsmap;
    if (!model_.charsmap.empty()) charsmap = std::make_unique<Charsmap>(path_, model_.charsmap);
    std::vector<std::string> kept;
    for (const Piece& piece : model_.pieces) {
      if (piece.type == kUserDefined) kept.push_back(piece.text);
    }
    parts.normalizer.add(
        sentencepiece_normalizer(model_.rules, std::move(charsmap), std::move(kept)));
    if (model_.byte_fallback) parts.decoder.add_byte_fallback();
    parts.decoder.add_replace(std::string(word_rule::kMark), " ");
    parts.decoder.add_fuse();
    if (model_.rules.dummy_prefix && !model_.rules.space_as_suffix)
      parts.decoder.add_strip(" ", 1, 0);
    return parts;
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw IoError(path_ + ": " + what + "; the file is damaged", path_);
  }

  void read(std::string_view bytes) {
    Message message(path_, bytes);
    for (Field field; message.next(field);) {
      if (field.number == 1) read_piece(field.bytes);
      if (field.number == 2) read_trainer(field.bytes);
      if (field.number == 3) read_rules(field.bytes);
    }
  }

  void read_piece(std::string_view bytes) {
    Piece piece;
    Message message(path_, bytes);
    for (Field field; message.next(field);) {
      if (field.number == 1) piece.text = field.bytes;
      if (field.number == 2)
        piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
      if (field.number == 3) piece.type = field.value;
    }
    model_.pieces.push_back(std::move(piece));
  }

  void read_trainer(std::string_view bytes) {
    Message message(path_, bytes);
    for (Field field; message.next(field);) {
      if (field.number == 3) model_.type = field.value;
      if (field.number == 24) model_.rules.space_as_suffix = field.value != 0;
      if (field.number == 35) model_.byte_fallback = field.value != 0;
    }
  }

  void read_rules(std::string_view bytes) {
    Message message(path_, bytes);
    for (Field field; message.next(field);) {
      if (field.number == 2) model_.charsmap = field.bytes;
      if (field.number == 3) model_.rules.dummy_prefix = field.value != 0;
      if (field.number == 4) model_.rules.remove_extra_spaces = field.value != 0;
      if (field.number == 5) model_.rules.escape_spaces = field.value != 0;
    }
  }

  void check() {
    if (model_.type != kUnigram && model_.type != kBpe) {
      throw ConfigError(path_ + ": a SentencePiece model of type " + std::to_string(model_.type) +
                        " is not supported; expected unigram or BPE");
    }
    if (model_.pieces.empty() || model_.pieces.size() > static_cast<std::size_t>(kMostIds)) {
      damaged("it holds " + std::to_string(model_.pieces.size()) + " pieces");
    }
    for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
      const Piece& piece = model_.pieces[id];
      const std::string name = "piece " + std::to_string(id);
      if (piece.text.empty() || valid_utf8_prefix(piece.text) != piece.text.size()) {
        damaged(name + " is empty or no UTF-8");
      }
      if (piece.type < kNormal || piece.type > kByte) damaged(name + " has an unknown type");
      if (piece.type == kUnused) {
        throw ConfigError(path_ + ": " + name + " is marked as unused, which is not supported");
      }
      if (piece.type == kUnknown) unknown_ = static_cast<std::int32_t>(id);
      if (!(piece.score > -1e30F && piece.score < 1e30F)) damaged(name + " has no finite score");
    }
    if (unknown_ < 0) damaged("no piece stands for unknown characters");
  }

  [[nodiscard]] std::unique_ptr<WordModel> unigram(const TokenizerParts& parts) const {
    std::vector<Unigram::Piece> pieces;
    for (const Piece& piece : model_.pieces) {
      const bool user_defined = piece.type == kUserDefined;
      pieces.push_back(
          {piece.text, piece.score, piece.type == kNormal || user_defined, user_defined});
    }
    Unigram::Options options;
    options.name = parts.name;
    options.unknown = unknown_;
    options.byte_fallback = model_.byte_fallback;
    options.sentencepiece = true;
    return std::make_unique<Unigram>(std::move(pieces), options);
  }

  // User-defined pieces are cut out first and never merge: added tokens of the normalised text. Two
  // neighbours merge if their text together is a piece, the best score first.
  [[nodiscard]] std::unique_ptr<WordModel> bpe(TokenizerParts& parts) const {
    std::vector<std::string> names;
    std::unordered_map<std::string_view, std::int32_t> ids;
    for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
      const Piece& piece = model_.pieces[id];
      const auto number = static_cast<std::int32_t>(id);
      const bool matches = piece.type == kNormal;
      names.push_back(matches || piece.type == kByte ? piece.text : std::string());
      if (matches) ids.emplace(piece.text, number);
      if (piece.type == kUserDefined) user_defined(parts, piece.text, number);
    }
    CharBpe::Options options;
    options.unknown = unknown_;
    options.fuse_unknown = true;
    options.byte_fallback = model_.byte_fallback;
    return std::make_unique<CharBpe>(names, merges(ids), options);
  }

  // Control pieces and the folder's tokens. encode() recognises user-defined pieces itself.
  [[nodiscard]] std::vector<AddedToken> chat_tokens(const FolderTokens& folder,
                                                    const std::vector<std::string>& pieces) const {
    std::vector<AddedToken> tokens = special_tokens_of(folder, pieces);
    std::erase_if(tokens, [this](const AddedToken& token) {
      const auto index = static_cast<std::size_t>(token.id);
      return index < model_.pieces.size() && model_.pieces[index].type == kUserDefined;
    });
    for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
      if (model_.pieces[id].type != kControl) continue;
      AddedToken token;
      token.content = model_.pieces[id].text;
      token.id = static_cast<std::int32_t>(id);
      const auto is_same = [&](const AddedToken& there) { return there.id == token.id; };
      if (std::none_of(tokens.begin(), tokens.end(), is_same)) tokens.push_back(std::move(token));
    }
    return tokens;
  }

  static void user_defined(TokenizerParts& parts, const std::string& text, std::int32_t id) {
    AddedToken token;
    token.content = text;
    token.id = id;
    token.normalized = true;
    token.is_normalized = true;
    parts.added.push_back(std::move(token));
  }

  [[nodiscard]] std::vector<BpeMerge> merges(
      const std::unordered_map<std::string_view, std::int32_t>& ids) const {
    std::vector<float> scores;
    for (const auto& [text, id] : ids) scores.push_back(nth(model_.pieces, id).score);
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    std::vector<BpeMerge> merges;
    for (const auto& [text, id] : ids) {
      const auto rank = std::lower_bound(scores.begin(), scores.end(), nth(model_.pieces, id).score,
                                         std::greater<>()) -
                        scores.begin();
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        const auto left = ids.find(text.substr(0, cut));
        if (left == ids.end()) continue;
        const auto right = ids.find(text.substr(cut));
        if (right == ids.end()) continue;
        merges.push_back({left->second, right->second, id, static_cast<std::int32_t>(rank)});
      }
    }
    return merges;
  }

  const std::string& path_;
  Model model_;
  std::int32_t unknown_ = -1;
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path, const FolderTokens& folder) {
  const std::string bytes = read_whole_file(path, 512 * kMiB);
  TokenizerParts parts = Reader(path, bytes).parts(folder);
  parts.split_special = folder.split_special;
  parts.fingerprint = text_fingerprint(TokenizerKind::kSentencePiece, {bytes});
  return std::make_unique<TextTokenizer>(std::move(parts));
}

}  // namespace sluice
