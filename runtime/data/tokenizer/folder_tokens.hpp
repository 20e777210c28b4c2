// Special tokens that the files beside a tokenizer's file name: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json, generation_config.json and config.json. As in
// transformers, a key of special_tokens_map.json replaces the same key of tokenizer_config.json,
// and a tokenizer_config.json with added_tokens_decoder stands alone. Functions depend only on
// arguments and files; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/tokenizer/added_tokens.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"

namespace sluice {

struct FolderTokens {
  std::string path;                   // tokenizer_config.json, for messages
  std::vector<std::string> names;     // bos_token, eos_token ... of the two files
  std::string eos_token;              // of the two files; empty: none
  std::vector<std::int32_t> eos_ids;  // eos_token_id of generation_config.json, else of config.json
  std::vector<AddedToken> added;      // of added_tokens.json and added_tokens_decoder
  bool split_special = false;         // Tokenizer::splits_special()
};

// Empty for a file under a name of its own: the files beside it are another tokenizer's. Throws
// IoError if a file is damaged; a damaged config.json is no tokenizer's file and counts as empty.
[[nodiscard]] FolderTokens read_folder_tokens(const TokenizerSource& source);

// Key and content of each named token, as {"eos_token", "</s>"}: of the tokenizer_config.json
// `config` and of the special_tokens_map.json beside. Files may be missing. Throws IoError if one
// is damaged.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> named_tokens(
    const std::string& config);

// The token that ends a document.
struct EndOfText {
  std::int32_t id = 0;
  bool is_new = false;  // no file names one: the id follows the vocabulary's
  // Part of Tokenizer::document_fingerprint(); empty where the tokenizer's own file decides alone.
  std::string mark{};
};

// Appends the folder's added tokens to `pieces`, if `with_added`, and chooses the end of text:
// eos_token, the first of eos_ids that `is_special`, or the first customary name. Else a new last
// piece. Throws IoError if an added token has the id of another piece.
[[nodiscard]] EndOfText settle_special_tokens(std::vector<std::string>& pieces,
                                              const FolderTokens& folder, bool with_added,
                                              const std::function<bool(std::int32_t)>& is_special);

// The added tokens, and the pieces that the folder names as special tokens.
[[nodiscard]] std::vector<AddedToken> special_tokens_of(const FolderTokens& folder,
                                                        const std::vector<std::string>& pieces);

}  // namespace sluice
