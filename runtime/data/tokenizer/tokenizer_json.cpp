// JSON files: vocab.json and tokenizer.json.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"
#include "runtime/data/tokenizer/model/byte_bpe.hpp"
#include "runtime/data/tokenizer/model/char_bpe.hpp"
#include "runtime/data/tokenizer/model/unigram.hpp"
#include "runtime/data/tokenizer/text_tokenizer.hpp"
#include "runtime/data/tokenizer/tokenizer_json_parts.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

std::int32_t id_of_json(const std::string& path, const Json& value, const std::string& what) {
  if (value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
      value.get<std::int64_t>() < kMostIds) {
    return value.get<std::int32_t>();
  }
  throw IoError(
      path + ": the id of " + what + " is not a number from 0 to " + std::to_string(kMostIds - 1),
      path);
}

class Reader {
 public:
  Reader(const std::string& path, const Json& root, const FolderTokens& folder)
      : path_(path), root_(root), folder_(folder) {}

  TokenizerParts read() {
    read_normalizer(path_, root_.value("normalizer", Json()), parts_.normalizer);
    const Json pre_tokenizer = root_.value("pre_tokenizer", Json());
    parts_.byte_level = read_pre_tokenizer(path_, pre_tokenizer, parts_.pre_tokenizer);
    read_decoder(path_, root_.value("decoder", Json()), parts_.byte_level, parts_.decoder);
    parts_.name = "tokenizer.json (" + path_ + ")";
    const Json& model = root_.at("model");
    const std::string type = model.value("type", model.contains("merges") ? "BPE" : "?");
    if (type == "BPE") {
      read_bpe(model);
    } else if (type == "Unigram") {
      read_unigram(model);
    } else {
      refuse_part(path_, "model " + type, "is not supported");
    }
    read_post_processor(root_.value("post_processor", Json()), 0);
    return std::move(parts_);
  }

 private:
  static bool empty_or_absent(const Json& object, const char* key) {
    return !object.contains(key) || object[key].is_null() || object[key] == "" ||
           object[key] == false || object[key] == 0.0;
  }

  void read_bpe(const Json& json) {
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
      if (!empty_or_absent(json, key)) {
        refuse_part(path_, "model." + std::string(key),
                    "= " + json[key].dump() + " is not supported");
      }
    }
    for (const auto& [written, value] : json.at("vocab").items()) {
      const std::int32_t id = checked_id(value, "model.vocab '" + written + "'");
      std::string piece = written;
      if (parts_.byte_level) (void)from_alphabet(written, piece);
      set_piece(parts_.pieces, path_, id, std::move(piece));
      vocab_.emplace(written, id);
    }
    for (const Json& merge : json.at("merges")) read_merge(merge);
    std::vector<std::string> pieces = parts_.pieces;  // without the added tokens
    finish_pieces();
    const bool whole_words = json.value("ignore_merges", false);
    if (parts_.byte_level) {
      parts_.words = std::make_unique<ByteBpe>(
          parts_.pieces, merges_, ByteBpe::Options{parts_.name, whole_words, parts_.end.id});
      return;
    }
    CharBpe::Options options;
    options.whole_words_first = whole_words;
    options.byte_fallback = json.value("byte_fallback", false);
    options.fuse_unknown = json.value("fuse_unk", false);
    if (!empty_or_absent(json, "unk_token")) {
      options.unknown = id_of_piece(json["unk_token"].get<std::string>(), "model.unk_token");
    }
    parts_.unknown = options.unknown;
    parts_.words = std::make_unique<CharBpe>(pieces, merges_, options);
  }

  void read_unigram(const Json& json) {
    if (parts_.byte_level) refuse_part(path_, "model Unigram", "with ByteLevel is not supported");
    std::vector<Unigram::Piece> pieces;
    for (const Json& entry : json.at("vocab")) {
      pieces.push_back({entry.at(0).get<std::string>(), entry.at(1).get<double>()});
      if (pieces.size() > static_cast<std::size_t>(kMostIds)) {
        throw IoError(path_ + ": model.vocab has more than " + std::to_string(kMostIds) + " pieces",
                      path_);
      }
      parts_.pieces.push_back(pieces.back().text);
    }
    Unigram::Options options;
    options.name = parts_.name;
    options.byte_fallback = json.value("byte_fallback", false);
    if (!empty_or_absent(json, "unk_id") || json.value("unk_id", Json()) == 0) {
      options.unknown = checked_id(json["unk_id"], "model.unk_id");
    }
    parts_.unknown = options.unknown;
    parts_.words = std::make_unique<Unigram>(std::move(pieces), options);
    finish_pieces();
  }

  void finish_pieces() {
    if (root_.contains("added_tokens")) read_added_tokens(root_["added_tokens"]);
    parts_.end = settle_special_tokens(parts_.pieces, folder_, false, [this](std::int32_t id) {
      return std::any_of(parts_.added.begin(), parts_.added.end(),
                         [id](const AddedToken& token) { return token.id == id; });
    });
  }

  std::int32_t id_of_piece(const std::string& piece, const std::string& what) const {
    const auto found = vocab_.find(piece);
    if (!piece.empty() && found != vocab_.end()) return found->second;
    throw IoError(path_ + ": " + what + " is of pieces that are not in model.vocab", path_);
  }

  void read_merge(const Json& merge) {
    std::string left, right;
    if (merge.is_string()) {
      const std::string text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    } else if (merge.is_array() && merge.size() == 2) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    const std::string what = "merge " + merge.dump(-1, ' ', false, Json::error_handler_t::replace);
    merges_.push_back({id_of_piece(left, what), id_of_piece(right, what),
                       id_of_piece(left + right, what), static_cast<std::int32_t>(merges_.size())});
  }

  void read_added_tokens(const Json& tokens) {
    for (const Json& json : tokens) {
      AddedToken token;
      token.content = json.at("content").get<std::string>();
      token.id = checked_id(json.at("id"), "added token '" + token.content + "'");
      token.lstrip = json.value("lstrip", false);
      token.rstrip = json.value("rstrip", false);
      token.single_word = json.value("single_word", false);
      token.normalized = json.value("normalized", false);
      token.is_text = folder_.split_special && json.value("special", false);
      // The same piece may stand in the vocabulary too, written in the alphabet.
      const auto index = static_cast<std::size_t>(token.id);
      if (index < parts_.pieces.size()) parts_.pieces[index].clear();
      set_piece(parts_.pieces, path_, token.id, token.content);
      parts_.added.push_back(std::move(token));
    }
  }

  // The part of a template before the text.
  void read_post_processor(const Json& json, int depth) {
    const std::string type = type_of_part(json);
    if (depth > 16) refuse_part(path_, "post_processor", "is nested too deeply");
    if (json.is_null() || type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const Json& part : json.at("processors")) read_post_processor(part, depth + 1);
    } else if (type == "TemplateProcessing") {
      read_template(json);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      parts_.leading.insert(parts_.leading.begin(),
                            checked_id(json.at("cls").at(1), "post_processor.cls"));
    } else {
      refuse_part(path_, "post_processor " + type, "is not supported");
    }
  }

  void read_template(const Json& json) {
    std::vector<std::int32_t> ids;
    for (const Json& piece : json.at("single")) {
      if (!piece.contains("SpecialToken")) break;  // the text itself
      const auto name = piece["SpecialToken"].at("id").get<std::string>();
      for (const Json& id : json.at("special_tokens").at(name).at("ids")) {
        ids.push_back(checked_id(id, "post_processor '" + name + "'"));
      }
    }
    // A later processor wraps the result of the earlier ones.
    parts_.leading.insert(parts_.leading.begin(), ids.begin(), ids.end());
  }

  std::int32_t checked_id(const Json& value, const std::string& what) const {
    return id_of_json(path_, value, what);
  }

  const std::string& path_;
  const Json& root_;
  const FolderTokens& folder_;
  TokenizerParts parts_;
  std::vector<BpeMerge> merges_;
  std::unordered_map<std::string, std::int32_t> vocab_;
};

// transformers adds the folder's tokens to those of the file. Here the file alone decides.
void warn_of_unread_tokens(const std::string& path, const FolderTokens& folder,
                           const std::vector<AddedToken>& added) {
  constexpr std::size_t kMostNamed = 8;
  std::vector<std::string> missing;
  const auto look = [&](const std::string& content) {
    const auto is_same = [&](const AddedToken& token) { return token.content == content; };
    if (std::any_of(added.begin(), added.end(), is_same)) return;
    if (std::find(missing.begin(), missing.end(), content) == missing.end()) {
      missing.push_back(content);
    }
  };
  for (const std::string& name : folder.names) look(name);
  for (const AddedToken& token : folder.added) look(token.content);
  if (missing.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(missing.size(), kMostNamed); ++i) {
    names += (i == 0 ? "'" : ", '") + missing[i] + "'";
  }
  if (missing.size() > kMostNamed) names += ", ... (" + std::to_string(missing.size()) + " tokens)";
  log_warning(path + ": added_tokens lacks " + names +
              ", which the files beside it declare: they are encoded as text. transformers "
              "recognises them; save the folder with it, AutoTokenizer.from_pretrained(FOLDER)"
              ".save_pretrained(OTHER), which adds them to tokenizer.json");
}

}  // namespace

std::unordered_map<std::string, std::int32_t> parse_vocab_json(const std::string& path,
                                                               const std::string& text) {
  std::unordered_map<std::string, std::int32_t> vocab;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) throw IoError(path + " is not a JSON object of pieces and ids", path);
    for (const auto& [piece, id] : json.items()) {
      vocab.emplace(piece, id_of_json(path, id, "'" + piece + "'"));
    }
  } catch (const Json::exception& error) {
    throw IoError(path + " is not valid JSON: " + error.what(), path);
  }
  return vocab;
}

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path,
                                               const FolderTokens& folder) {
  const std::string text = read_whole_file(path, 512 * kMiB);
  try {
    const Json root = Json::parse(text);
    if (!root.is_object()) throw IoError(path + " is not a JSON object", path);
    TokenizerParts parts = Reader(path, root, folder).read();
    warn_of_unread_tokens(path, folder, parts.added);
    parts.split_special = folder.split_special;
    parts.fingerprint = text_fingerprint(TokenizerKind::kJson, {text});
    return std::make_unique<TextTokenizer>(std::move(parts));
  } catch (const nlohmann::json::exception& error) {
    throw IoError(path + " is not a tokenizer.json: " + error.what(), path);
  }
}

}  // namespace sluice
