// Word n-grams that a text shares with evaluation sets, and the text without them. The method is
// that of Megatron's tools: runs of 13 words of the evaluation set; a set's text of 8 to 12 words
// as a whole; n-grams that the corpus has often are common phrases and stay. Thread-safe after the
// last add().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sluice {

struct ContaminationOptions {
  int most_words = 13, least_words = 8;  // of an n-gram
  std::int64_t common = 10;              // n-grams with so many occurrences stay
  std::size_t cut_characters = 200;      // on each side, then on to the sentence's end
  std::size_t least_characters = 200;    // a piece has more
  std::size_t most_pieces = 10;          // a text of more pieces is dropped
};

// Place of a match in a text.
struct SharedRun {
  std::size_t gram = 0;            // number of the n-gram
  std::size_t begin = 0, end = 0;  // bytes
};

// A word of a text and its hash in lower case.
struct PlacedWord {
  std::size_t begin = 0, end = 0;
  std::uint64_t hash = 0;
};

class EvaluationGrams {
 public:
  // Throws ConfigError unless 1 <= least_words <= most_words.
  explicit EvaluationGrams(const ContaminationOptions& options);
  void add(std::string_view text);
  [[nodiscard]] std::size_t size() const { return numbers_.size(); }
  // The n-grams of `text` from left to right; after a match the search goes on behind its end.
  [[nodiscard]] std::vector<SharedRun> find(std::string_view text) const;
  // The pieces of `text` without the n-grams that `counts` has fewer than `common` times. A text
  // without such an n-gram is one piece, whatever its length.
  [[nodiscard]] std::vector<std::string_view> pieces(std::string_view text,
                                                     const std::vector<std::int64_t>& counts) const;

 private:
  // The first n-gram of the words from `at` on that is rare; without counts, that is one of the
  // set.
  [[nodiscard]] bool find_from(const std::vector<PlacedWord>& words, std::size_t at,
                               const std::vector<std::int64_t>* counts, SharedRun& run) const;

  ContaminationOptions options_;
  std::unordered_map<std::uint64_t, std::size_t> numbers_;  // of an n-gram, by hash
  std::vector<bool> lengths_;                               // which lengths occur
};

}  // namespace sluice
