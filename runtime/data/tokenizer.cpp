#include "runtime/data/tokenizer.hpp"

#include <algorithm>
#include <filesystem>

#include "kernels/base/error.hpp"
#include "kernels/base/log.hpp"
#include "runtime/data/bpe_files.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr std::int32_t kEndOfText = 256;

  [[nodiscard]] std::int64_t vocab_size() const override { return kEndOfText + 1; }
  [[nodiscard]] std::int32_t end_of_text() const override { return kEndOfText; }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    std::transform(text.begin(), text.end(), ids.begin(),
                   [](char byte) { return static_cast<std::uint8_t>(byte); });
    return ids;
  }
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id >= 0 && id < kEndOfText) {
        text += static_cast<char>(id);
      } else {
        text += id == kEndOfText ? kEndOfTextName : std::string_view("\xEF\xBF\xBD");
      }
    }
    return text;
  }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const std::string& fingerprint() const override { return fingerprint_; }

 private:
  std::string name_ = "bytes";
  std::string fingerprint_ = "bytes v1";
};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// gpt2-vocab.json <-> gpt2-merges.txt
BpeModel read_gpt2_pair(const fs::path& path, bool is_vocab) {
  std::string other = path.filename().string();
  const std::string from = is_vocab ? "vocab.json" : "merges.txt";
  other.replace(other.size() - from.size(), from.size(), is_vocab ? "merges.txt" : "vocab.json");
  const fs::path other_path = path.parent_path() / other;
  if (!is_file(other_path)) {
    throw IoError(
        "data.tokenizer: " + path.string() + " needs " + other_path.string() + " beside it",
        other_path.string());
  }
  return is_vocab ? read_gpt2_files(path.string(), other_path.string())
                  : read_gpt2_files(other_path.string(), path.string());
}

BpeModel read_file(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with("vocab.json")) return read_gpt2_pair(path, true);
  if (name.ends_with("merges.txt")) return read_gpt2_pair(path, false);
  if (name.ends_with(".tiktoken") || name == "tokenizer.model")
    return read_tiktoken_file(path.string());
  if (name.ends_with(".json")) return read_tokenizer_json(path.string());
  throw ConfigError(
      "data.tokenizer: " + path.string() +
      " is of no known kind; expected vocab.json, merges.txt, *.tiktoken or tokenizer.json");
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
  throw IoError("data.tokenizer: no tokenizer.json, vocab.json + merges.txt or *.tiktoken in " +
                    folder.string(),
                folder.string());
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  std::error_code ignored;
  fs::path path = spec;
  if (fs::is_directory(path, ignored)) {
    path = file_in_folder(path);
  } else if (!is_file(path)) {
    throw IoError("data.tokenizer: there is no file or folder '" + spec +
                      "' (the one built in is called bytes)",
                  spec);
  }
  auto tokenizer = std::make_unique<BpeTokenizer>(read_file(path));
  log_info("tokenizer " + tokenizer->name() + ", " + std::to_string(tokenizer->vocab_size()) +
           " ids, end of text " + std::to_string(tokenizer->end_of_text()));
  return tokenizer;
}

}  // namespace sluice
