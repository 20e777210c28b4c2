#include "runtime/data/tokenizer/tokenizer_json_write.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"
#include "runtime/data/tokenizer/split_pattern.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

BpeModel bytes_model() {
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.pieces.emplace_back(1, static_cast<char>(byte));
  model.end.id = static_cast<std::int32_t>(model.pieces.size());
  model.pieces.emplace_back(kEndOfTextName);
  return model;
}

// Pieces by id as their file writes them; empty: a hole.
std::vector<std::string> written_pieces(const BpeModel& model, const TokenizerSource& source) {
  std::vector<std::string> written;
  for (const std::string& piece : model.pieces) written.push_back(to_alphabet(piece));
  for (const AddedToken& token : model.added) nth(written, token.id) = token.content;
  nth(written, model.end.id) = nth(model.pieces, model.end.id);
  if (source.kind != TokenizerKind::kGpt2) return written;
  // A piece of other characters than the alphabet's stands in the file as it is.
  const auto texts = read_tokenizer_texts(source);
  for (const auto& [piece, id] : parse_vocab_json(source.paths[0], texts[0].text)) {
    nth(written, id) = piece;
  }
  return written;
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// ByteLevel brings GPT-2's pattern with it.
Json pre_tokenizer_of(const BpeModel& model) {
  if (model.pattern.empty()) return byte_level(false);
  if (model.pattern == kGpt2Pattern) return byte_level(true);
  const Json split{{"type", "Split"},
                   {"pattern", {{"Regex", model.pattern}}},
                   {"behavior", "Isolated"},
                   {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

// In the order of creation. Merges with equal rank make the same piece.
Json merges_of(const BpeModel& model, const std::vector<std::string>& written) {
  std::vector<BpeMerge> merges = model.merges;
  std::sort(merges.begin(), merges.end(), [](const BpeMerge& a, const BpeMerge& b) {
    return std::tuple(a.rank, a.left, a.right) < std::tuple(b.rank, b.left, b.right);
  });
  Json list = Json::array();
  for (const BpeMerge& merge : merges) {
    list.push_back(nth(written, merge.left) + " " + nth(written, merge.right));
  }
  return list;
}

// The end of text and the folder's added tokens.
Json added_tokens_of(const BpeModel& model, const std::vector<std::string>& written) {
  std::vector<AddedToken> tokens = model.added;
  const auto is_end = [&](const AddedToken& token) { return token.id == model.end.id; };
  if (std::none_of(tokens.begin(), tokens.end(), is_end)) {
    AddedToken end;
    end.content = nth(written, model.end.id);
    end.id = model.end.id;
    tokens.push_back(std::move(end));
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  Json list = Json::array();
  for (const AddedToken& token : tokens) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

std::string write_json(const BpeModel& model, const std::vector<std::string>& written) {
  Json vocab = Json::object();
  // Appends, since a lookup by key would scan all entries.
  auto& entries = vocab.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < written.size(); ++id) {
    if (!written[id].empty()) entries.emplace_back(written[id], id);
  }
  Json json{{"version", "1.0"},          {"truncation", nullptr},
            {"padding", nullptr},        {"added_tokens", added_tokens_of(model, written)},
            {"normalizer", nullptr},     {"pre_tokenizer", pre_tokenizer_of(model)},
            {"post_processor", nullptr}, {"decoder", byte_level(true)}};
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", model.whole_words_first},
                   {"vocab", std::move(vocab)},
                   {"merges", merges_of(model, written)}};
  return json.dump(1) + "\n";
}

}  // namespace

std::string write_tokenizer_json(const std::string& spec) {
  const TokenizerSource source = find_tokenizer(spec);
  if (source.kind == TokenizerKind::kJson) return read_tokenizer_texts(source).front().text;
  if (source.kind == TokenizerKind::kSentencePiece) {
    throw ConfigError("tokenizer.json of " + spec +
                      ": a SentencePiece model is not converted; use its tokenizer.model");
  }
  const BpeModel model =
      source.kind == TokenizerKind::kBytes ? bytes_model()
      : source.kind == TokenizerKind::kGpt2
          ? read_gpt2_files(source.paths[0], source.paths[1], read_folder_tokens(source))
          : read_tiktoken_file(source.paths[0]);
  return write_json(model, written_pieces(model, source));
}

}  // namespace sluice
