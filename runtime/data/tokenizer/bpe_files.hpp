// Readers and the writer of byte-level BPE files. `tokenizer.hpp` lists the accepted files. All
// throw IoError if a file cannot be read or is damaged, ConfigError if a file is of another kind.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/data/tokenizer/bpe_model.hpp"

namespace sluice {

[[nodiscard]] BpeModel read_gpt2_files(const std::string& vocab_path,
                                       const std::string& merges_path,
                                       const FolderTokens& folder = {});
[[nodiscard]] BpeModel read_tiktoken_file(const std::string& path);
[[nodiscard]] std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path,
                                                             const FolderTokens& folder = {});

// Writes vocab.json and merges.txt to `folder` (created if missing); each file is complete or
// untouched. `pieces` is ordered by id, the last piece is end-of-text. `merges` are pairs of ids,
// ordered by rank.
void write_gpt2_files(const std::string& folder, const std::vector<std::string>& pieces,
                      const std::vector<std::pair<std::int32_t, std::int32_t>>& merges);

inline constexpr std::string_view kEndOfTextName = "<|endoftext|>";

// Shared by the readers. Sets the bytes of `id`. Throws IoError (naming `path`) if the id has other
// bytes already.
void set_piece(std::vector<std::string>& pieces, const std::string& path, std::int32_t id,
               std::string piece);
// Standard alphabet, padded. False for other text.
[[nodiscard]] bool decode_base64(std::string_view text, std::string& bytes);
// Parses the text of file `path`: {"piece": id, ...}.
[[nodiscard]] std::unordered_map<std::string, std::int32_t> parse_vocab_json(
    const std::string& path, const std::string& text);
// A larger id means a damaged file.
inline constexpr std::int64_t kMostIds = 1 << 24;

}  // namespace sluice
