#include "runtime/data/tokenizer/tokenizer_source.hpp"

#include <filesystem>
#include <fstream>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/tokenizer/learned_options.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestTokenizer = 512 * kMiB;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// gpt2-vocab.json <-> gpt2-merges.txt
TokenizerSource gpt2_pair(const fs::path& path, bool is_vocab) {
  std::string other = path.filename().string();
  const std::string from = is_vocab ? "vocab.json" : "merges.txt";
  other.replace(other.size() - from.size(), from.size(), is_vocab ? "merges.txt" : "vocab.json");
  const fs::path other_path = path.parent_path() / other;
  if (!is_file(other_path)) {
    throw IoError(
        "data.tokenizer: " + path.string() + " needs " + other_path.string() + " beside it",
        other_path.string());
  }
  if (is_vocab) return {TokenizerKind::kGpt2, {path.string(), other_path.string()}};
  return {TokenizerKind::kGpt2, {other_path.string(), path.string()}};
}

// Meta's tokenizer.model is ranks of tiktoken, as lines of base64. A SentencePiece model begins
// with the tag of its first piece, a newline.
bool is_sentencepiece_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return stream.get() == '\n';
}

TokenizerSource source_of_file(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with("vocab.json")) return gpt2_pair(path, true);
  if (name.ends_with("merges.txt")) return gpt2_pair(path, false);
  if (name.ends_with(".tiktoken")) return {TokenizerKind::kTiktoken, {path.string()}};
  if (name.ends_with(".model")) {
    const bool pieces = is_sentencepiece_file(path);
    return {pieces ? TokenizerKind::kSentencePiece : TokenizerKind::kTiktoken, {path.string()}};
  }
  if (name.ends_with(".json")) return {TokenizerKind::kJson, {path.string()}};
  throw ConfigError("data.tokenizer: " + path.string() +
                    " is of no known kind; expected vocab.json, merges.txt, *.tiktoken, *.model or "
                    "tokenizer.json");
}

fs::path file_in_folder(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt"}) {
    if (is_file(folder / name)) return folder / name;
  }
  std::vector<fs::path> ranks;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tiktoken") ranks.push_back(entry.path());
  }
  if (ranks.size() == 1) return ranks[0];
  if (ranks.size() > 1) {
    throw ConfigError("data.tokenizer: " + folder.string() + " has " +
                      std::to_string(ranks.size()) + " .tiktoken files; name one");
  }
  if (is_file(folder / "tokenizer.model")) return folder / "tokenizer.model";
  throw IoError("data.tokenizer: " + folder.string() +
                    " has no tokenizer.json, vocab.json + merges.txt, *.tiktoken or "
                    "tokenizer.model; name a file or another folder",
                folder.string());
}

// Hugging Face's name of each kind of file.
std::vector<std::string> names_of(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kBytes:
      return {};
    case TokenizerKind::kGpt2:
      return {"vocab.json", "merges.txt"};
    case TokenizerKind::kTiktoken:
    case TokenizerKind::kSentencePiece:
      return {"tokenizer.model"};
    case TokenizerKind::kJson:
      break;
  }
  return {"tokenizer.json"};
}

}  // namespace

TokenizerSource find_tokenizer(const std::string& spec) {
  if (spec == "bytes") return {};
  std::error_code ignored;
  const fs::path path = spec;
  if (fs::is_directory(path, ignored)) return source_of_file(file_in_folder(path));
  if (is_file(path)) return source_of_file(path);
  if (is_learned_tokenizer(spec)) {
    throw ConfigError("data.tokenizer: " + spec +
                      " is learned by a training run from its text; give this command a file or "
                      "folder (`sluice tokenizer train` writes one)");
  }
  throw IoError("data.tokenizer: there is no file or folder '" + spec +
                    "' (the one built in is called bytes)",
                spec);
}

std::vector<TokenizerText> read_tokenizer_texts(const TokenizerSource& source) {
  std::vector<TokenizerText> texts;
  for (const std::string& name : names_of(source.kind)) {
    texts.push_back({name, read_whole_file(source.paths.at(texts.size()), kLargestTokenizer)});
  }
  return texts;
}

std::string text_fingerprint(TokenizerKind kind, const std::vector<std::string_view>& texts) {
  if (kind == TokenizerKind::kBytes) return "bytes v1";
  const bool json = kind == TokenizerKind::kJson;
  const std::string name = json                                    ? "json"
                           : kind == TokenizerKind::kGpt2          ? "gpt2"
                           : kind == TokenizerKind::kSentencePiece ? "sentencepiece"
                                                                   : "tiktoken";
  Hasher hasher;
  hasher.add((json ? "tokenizer.json" : name) + " v1");
  for (const std::string_view text : texts) hasher.add(text);
  return name + ":" + hasher.digest_hex();
}

std::string tokenizer_fingerprint(TokenizerKind kind, const std::vector<TokenizerText>& texts) {
  std::vector<std::string_view> views;
  for (const TokenizerText& file : texts) views.emplace_back(file.text);
  return text_fingerprint(kind, views);
}

std::string tokenizer_fingerprint(const std::string& spec) {
  const TokenizerSource source = find_tokenizer(spec);
  return tokenizer_fingerprint(source.kind, read_tokenizer_texts(source));
}

}  // namespace sluice
