// JSON files: vocab.json, and tokenizer.json of byte-level BPE. Every part of a tokenizer.json is
// either supported or refused by name, because an almost right tokenizer trains a wrong model.
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"
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
  Reader(const std::string& path, const Json& root) : path_(path), root_(root) {}

  BpeModel read() {
    check_parts();
    read_model();
    if (root_.contains("added_tokens")) read_added_tokens(root_["added_tokens"]);
    read_pre_tokenizer(root_.value("pre_tokenizer", Json()));
    if (!byte_level_) refuse("pre_tokenizer", "without ByteLevel is not supported");
    read_post_processor(root_.value("post_processor", Json()));
    choose_end_of_text(model_);
    model_.name = "tokenizer.json (" + path_ + ")";
    return std::move(model_);
  }

 private:
  [[noreturn]] void refuse(const std::string& part, const std::string& why) const {
    throw ConfigError(path_ + ": " + part + " " + why +
                      "; only byte-level BPE is supported (model BPE, pre_tokenizer ByteLevel)");
  }
  static std::string type_of(const Json& part) {
    return part.is_object() ? part.value("type", "?") : part.is_null() ? "null" : "?";
  }
  static bool empty_or_absent(const Json& object, const char* key) {
    return !object.contains(key) || object[key].is_null() || object[key] == "" ||
           object[key] == false || object[key] == 0.0;
  }

  void check_parts() const {
    const Json normalizer = root_.value("normalizer", Json());
    if (type_of(normalizer) == "NFC") {
      log_warning(path_ +
                  ": its normalizer NFC is not applied; text that is not in NFC (rare) gets " +
                  "other tokens than there");
    } else if (!normalizer.is_null() && !(type_of(normalizer) == "Sequence" &&
                                          normalizer.value("normalizers", Json()).empty())) {
      refuse("normalizer " + type_of(normalizer), "is not supported");
    }
    const Json decoder = root_.value("decoder", Json());
    if (!decoder.is_null() && type_of(decoder) != "ByteLevel") {
      refuse("decoder " + type_of(decoder), "is not supported");
    }
  }

  void read_model() {
    const Json& json = root_.at("model");
    const std::string type = json.value("type", json.contains("merges") ? "BPE" : "?");
    if (type != "BPE") refuse("model " + type, "is not supported");
    for (const char* key :
         {"continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout"}) {
      if (!empty_or_absent(json, key)) {
        refuse("model." + std::string(key), "= " + json[key].dump() + " is not supported");
      }
    }
    model_.whole_words_first = json.value("ignore_merges", false);
    for (const auto& [written, value] : json.at("vocab").items()) {
      const std::int32_t id = checked_id(value, "model.vocab '" + written + "'");
      std::string piece = written;
      (void)from_alphabet(written, piece);
      set_piece(model_, path_, id, std::move(piece));
      vocab_.emplace(written, id);
    }
    for (const Json& merge : json.at("merges")) read_merge(merge);
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
    const auto id_of = [&](const std::string& piece) {
      const auto found = vocab_.find(piece);
      if (piece.empty() || found == vocab_.end()) {
        throw IoError(
            path_ + ": merge " + merge.dump() + " is of pieces that are not in model.vocab", path_);
      }
      return found->second;
    };
    model_.merges.push_back({id_of(left), id_of(right), id_of(left + right),
                             static_cast<std::int32_t>(model_.merges.size())});
  }

  void read_added_tokens(const Json& tokens) {
    for (const Json& token : tokens) {
      const auto content = token.at("content").get<std::string>();
      for (const char* key : {"lstrip", "rstrip", "single_word"}) {
        if (!empty_or_absent(token, key)) {
          refuse("added token '" + content + "'", std::string("with ") + key + " is not supported");
        }
      }
      const std::int32_t id = checked_id(token.at("id"), "added token '" + content + "'");
      // The same piece may stand in the vocabulary too, written in the alphabet.
      const auto index = static_cast<std::size_t>(id);
      if (index < model_.pieces.size()) model_.pieces[index].clear();
      set_piece(model_, path_, id, content);
      model_.added.emplace_back(content, id);
    }
  }

  void read_pre_tokenizer(const Json& json) {
    const std::string type = type_of(json);
    if (type == "Sequence") {
      for (const Json& part : json.at("pretokenizers")) read_pre_tokenizer(part);
    } else if (type == "ByteLevel") {
      if (json.value("add_prefix_space", false)) {
        refuse("pre_tokenizer ByteLevel", "with add_prefix_space is not supported");
      }
      if (json.value("use_regex", true)) model_.patterns.emplace_back(kGpt2Pattern);
      byte_level_ = true;
    } else if (type == "Split") {
      read_split(json);
    } else if (type == "Digits") {
      model_.patterns.emplace_back(json.value("individual_digits", false) ? R"(\p{N})"
                                                                          : R"(\p{N}+)");
    } else {
      refuse("pre_tokenizer " + type, "is not supported");
    }
  }

  void read_split(const Json& json) {
    const auto behavior = json.value("behavior", "?");
    const bool invert = json.value("invert", false);
    // Matches are words, and so are the gaps between them: no text is lost.
    if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) {
      refuse("pre_tokenizer Split", std::string("with behavior ") + behavior +
                                        (invert ? ", inverted," : "") + " is not supported");
    }
    const Json& pattern = json.at("pattern");
    if (pattern.contains("Regex")) {
      model_.patterns.push_back(pattern["Regex"].get<std::string>());
    } else {
      model_.patterns.push_back(std::string("\\Q") + pattern.at("String").get<std::string>() +
                                "\\E");
    }
  }

  // The part of a template before the text.
  void read_post_processor(const Json& json) {
    const std::string type = type_of(json);
    if (type == "Sequence") {
      for (const Json& part : json.at("processors")) read_post_processor(part);
    } else if (type == "TemplateProcessing") {
      read_template(json);
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
    model_.leading.insert(model_.leading.begin(), ids.begin(), ids.end());
  }

  std::int32_t checked_id(const Json& value, const std::string& what) const {
    return id_of_json(path_, value, what);
  }

  const std::string& path_;
  const Json& root_;
  BpeModel model_;
  bool byte_level_ = false;
  std::unordered_map<std::string, std::int32_t> vocab_;
};

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

BpeModel read_tokenizer_json(const std::string& path) {
  const std::string text = read_whole_file(path, 512 * kMiB);
  try {
    const Json root = Json::parse(text);
    if (!root.is_object()) throw IoError(path + " is not a JSON object", path);
    BpeModel model = Reader(path, root).read();
    model.fingerprint = text_fingerprint(TokenizerKind::kJson, {text});
    return model;
  } catch (const nlohmann::json::exception& error) {
    throw IoError(path + " is not a tokenizer.json: " + error.what(), path);
  }
}

}  // namespace sluice
