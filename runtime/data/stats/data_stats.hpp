// Facts of a corpus: what `sluice data stats` prints. Memory depends on the vocabulary, not on the
// corpus. Text is tokenised on several threads; the result is the same for any number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/stats/length_counts.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct StatsOptions {
  std::vector<std::string> inputs;       // prefixes of .bin/.idx pairs; files, folders, globs
  const Tokenizer* tokenizer = nullptr;  // may be null if all inputs are pairs
  std::string json_key = "text";
  int threads = 0;                      // 0: the machine's, at most 16
  std::size_t piece_bytes = 2U << 20U;  // of text that one thread has in hand
};

struct DataStats {
  LengthCounts lengths;                  // of documents in tokens, empty ones too
  std::vector<std::int64_t> counts;      // by id
  std::int64_t outside = 0;              // tokens that are no id of the vocabulary
  std::int64_t files = 0, left_out = 0;  // read; files without text that were found, not named
  std::int64_t pairs = 0;                // inputs that are .bin/.idx
  std::int64_t text_bytes = 0;           // of text, without that of pairs
  std::int64_t text_tokens = 0;          // of text_bytes
  bool with_tokenizer = false;           // else the following are 0
  std::int64_t vocab = 0;                // ids of the tokenizer
  std::int64_t unknown = 0;              // tokens for text without a piece
  std::int64_t bytes = 0;                // tokens of one byte of a character without a piece
  std::int64_t end_of_text = 0;          // tokens that end a document

  [[nodiscard]] std::int64_t distinct() const;  // ids that occur
  // Ids by count, the largest first; of equal counts the lower id. At most `most`.
  [[nodiscard]] std::vector<std::int32_t> most_frequent(std::int64_t most) const;
};

// Throws ConfigError if an input is text and there is no tokenizer; IoError if an input cannot be
// read, with file and place, or has no document.
[[nodiscard]] DataStats measure_data(const StatsOptions& options);

// True if `input` names a .bin/.idx pair.
[[nodiscard]] bool is_indexed_pair(const std::string& input);

// What a report says beside the numbers.
struct StatsNames {
  std::string title{};                   // the inputs, for people
  const Tokenizer* tokenizer = nullptr;  // for the text of tokens
  std::int64_t most_frequent = 20;
};
[[nodiscard]] std::string stats_text(const DataStats& stats, const StatsNames& names);
// One object.
[[nodiscard]] std::string stats_json(const DataStats& stats, const StatsNames& names);
// One object for the page: stats_json(), and the counts of tokens by rank.
[[nodiscard]] std::string stats_page_json(const DataStats& stats, const StatsNames& names);
// The quantiles that reports have.
[[nodiscard]] std::span<const double> stats_quantiles();
// The text of a token for people: control characters are escaped, bytes that are no UTF-8 are \xHH.
[[nodiscard]] std::string token_text(const Tokenizer& tokenizer, std::int32_t id);

}  // namespace sluice
