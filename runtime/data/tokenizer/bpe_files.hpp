// Readers of the files byte-level BPE comes in, and their writer. `tokenizer.hpp` says what is
// accepted. All throw IoError where a file cannot be read or is damaged, ConfigError where it is of
// another kind.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/data/tokenizer/bpe_tokenizer.hpp"

namespace sluice {

[[nodiscard]] BpeModel read_gpt2_files(const std::string& vocab_path,
                                       const std::string& merges_path);
[[nodiscard]] BpeModel read_tiktoken_file(const std::string& path);
[[nodiscard]] BpeModel read_tokenizer_json(const std::string& path);

// vocab.json and merges.txt in `folder` (made if missing), each complete or untouched. `pieces` by
// id, the last being end-of-text; `merges` pairs of ids, by rank.
void write_gpt2_files(const std::string& folder, const std::vector<std::string>& pieces,
                      const std::vector<std::pair<std::int32_t, std::int32_t>>& merges);

inline constexpr std::string_view kEndOfTextName = "<|endoftext|>";

// Shared by the readers. The first customary end-of-text name that is a piece; else a new last
// piece.
void choose_end_of_text(BpeModel& model);
// Gives `id` its bytes. Throws IoError (naming `path`) where it has others already.
void set_piece(BpeModel& model, const std::string& path, std::int32_t id, std::string piece);
// {"piece": id, ...}, the text of the file `path`, as it is written there.
[[nodiscard]] std::unordered_map<std::string, std::int32_t> parse_vocab_json(
    const std::string& path, const std::string& text);
// More ids than this are taken for damage.
inline constexpr std::int64_t kMostIds = 1 << 24;

}  // namespace sluice
