// SentencePiece's tokenizer.model: a protocol buffer with pieces, their scores and the normaliser.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/charsmap.hpp"
#include "runtime/data/tokenizer/folder_tokens.hpp"
#include "runtime/data/tokenizer/normalizer.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

// Unigram and BPE models. Throws IoError if the file cannot be read or is damaged, ConfigError if
// the model is of another type.
[[nodiscard]] std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path,
                                                            const FolderTokens& folder = {});

struct SentencePieceRules {
  bool dummy_prefix = true;         // a space before the text
  bool remove_extra_spaces = true;  // at both ends, and all but one of a run
  bool escape_spaces = true;        // a space becomes U+2581
  bool space_as_suffix = false;     // the dummy space comes behind the text
};

// SentencePiece's own normaliser. `kept` pieces stay as they are.
[[nodiscard]] NormalizerPtr sentencepiece_normalizer(const SentencePieceRules& rules,
                                                     std::unique_ptr<Charsmap> charsmap,
                                                     std::vector<std::string> kept);

}  // namespace sluice
