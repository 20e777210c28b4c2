#include "runtime/data/tokenizer/tokenizer.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "runtime/data/tokenizer/bpe_files.hpp"
#include "runtime/data/tokenizer/sentencepiece_file.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"

namespace sluice {
namespace {

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

std::unique_ptr<Tokenizer> read_source(const TokenizerSource& source) {
  if (source.kind == TokenizerKind::kBytes) return std::make_unique<ByteTokenizer>();
  if (source.kind == TokenizerKind::kTiktoken)
    return bpe_tokenizer(read_tiktoken_file(source.paths[0]));
  const FolderTokens folder = read_folder_tokens(source);
  if (source.kind == TokenizerKind::kGpt2) {
    return bpe_tokenizer(read_gpt2_files(source.paths[0], source.paths[1], folder));
  }
  if (source.kind == TokenizerKind::kSentencePiece)
    return read_sentencepiece(source.paths[0], folder);
  return read_tokenizer_json(source.paths[0], folder);
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  const TokenizerSource source = find_tokenizer(spec);
  auto tokenizer = read_source(source);
  if (source.kind == TokenizerKind::kBytes) return tokenizer;
  log_info("tokenizer " + tokenizer->name() + ", " + std::to_string(tokenizer->vocab_size()) +
           " ids, end of text " + std::to_string(tokenizer->end_of_text()));
  if (tokenizer->splits_special()) {
    log_info(tokenizer->name() +
             ": special tokens in texts and chats are encoded as text, as split_special_tokens of "
             "the tokenizer_config.json beside says");
  }
  if (tokenizer->end_is_new()) {
    log_warning(tokenizer->name() + ": no token of the vocabulary is known to end a text; id " +
                std::to_string(tokenizer->end_of_text()) +
                " is new and ends documents. A model that was trained with this tokenizer does "
                "not know it: name the model's own as eos_token in a tokenizer_config.json beside");
  }
  return tokenizer;
}

}  // namespace sluice
