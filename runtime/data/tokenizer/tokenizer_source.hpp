// The files of a tokenizer's spec, and their bytes. Results depend only on arguments and files;
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class TokenizerKind { kBytes, kGpt2, kTiktoken, kJson, kSentencePiece };

struct TokenizerSource {
  TokenizerKind kind = TokenizerKind::kBytes;
  std::vector<std::string> paths{};  // kGpt2: vocabulary, merges; kBytes: none; else one
};

// The files that make_tokenizer(spec) reads. Throws as make_tokenizer.
[[nodiscard]] TokenizerSource find_tokenizer(const std::string& spec);

struct TokenizerText {
  std::string name;  // in a folder of these files, which is a spec of the same tokenizer
  std::string text;
};

// Reads the files of a source in the order of its paths. Throws IoError.
[[nodiscard]] std::vector<TokenizerText> read_tokenizer_texts(const TokenizerSource& source);
// Tokenizer::fingerprint() of the tokenizer that these files make.
[[nodiscard]] std::string tokenizer_fingerprint(TokenizerKind kind,
                                                const std::vector<TokenizerText>& texts);
// The same for a spec.
[[nodiscard]] std::string tokenizer_fingerprint(const std::string& spec);
// The same for texts in the order of TokenizerSource::paths.
[[nodiscard]] std::string text_fingerprint(TokenizerKind kind,
                                           const std::vector<std::string_view>& texts);

}  // namespace sluice
