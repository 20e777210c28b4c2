// Where a tokenizer's text comes from: the files that its spec means, and their bytes. Functions of
// their arguments and of the files; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class TokenizerKind { kBytes, kGpt2, kTiktoken, kJson };

struct TokenizerSource {
  TokenizerKind kind = TokenizerKind::kBytes;
  std::vector<std::string> paths{};  // kGpt2: vocabulary, merges; kBytes: none; else one
};

// What make_tokenizer(spec) reads. Throws as make_tokenizer.
[[nodiscard]] TokenizerSource find_tokenizer(const std::string& spec);

struct TokenizerText {
  std::string name;  // in a folder of these files, which is a spec of the same tokenizer
  std::string text;
};

// The files of a source, in the order of its paths. Throws IoError.
[[nodiscard]] std::vector<TokenizerText> read_tokenizer_texts(const TokenizerSource& source);
// Tokenizer::fingerprint() of a tokenizer that is made of these.
[[nodiscard]] std::string tokenizer_fingerprint(TokenizerKind kind,
                                                const std::vector<TokenizerText>& texts);
// The same of what a spec means.
[[nodiscard]] std::string tokenizer_fingerprint(const std::string& spec);
// Of texts alone, in the order of TokenizerSource::paths.
[[nodiscard]] std::string text_fingerprint(TokenizerKind kind,
                                           const std::vector<std::string_view>& texts);

}  // namespace sluice
