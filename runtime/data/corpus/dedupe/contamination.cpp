#include "runtime/data/corpus/dedupe/contamination.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.hpp"
#include "runtime/data/corpus/filters/text_parts.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

bool is_word_part(char32_t c) { return c == '_' || is_word_character(c); }

// The next word at or behind `at`; false at the end.
bool next_word(std::string_view text, std::size_t at, PlacedWord& word) {
  std::size_t length = 0;
  while (at < text.size() && !is_word_part(first_code_point(text.substr(at), length))) at += length;
  if (at >= text.size()) return false;
  word.begin = at;
  while (at < text.size() && is_word_part(first_code_point(text.substr(at), length))) at += length;
  word.end = at;
  const std::string lower = to_lower(text.substr(word.begin, word.end - word.begin));
  word.hash = hash64(std::as_bytes(std::span(lower)));
  return true;
}

std::vector<PlacedWord> words_of(std::string_view text) {
  std::vector<PlacedWord> words;
  for (PlacedWord word; next_word(text, word.end, word);) words.push_back(word);
  return words;
}

std::uint64_t extend(std::uint64_t gram, std::uint64_t word) {
  const std::array<std::uint64_t, 2> both{gram, word};
  return hash64(std::as_bytes(std::span(both)));
}

bool ends_sentence(char c) { return c == '.' || c == '!' || c == '?'; }
bool inside_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

// End of the last sentence that ends `distance` characters or more before `at`, not before `least`;
// `least` if there is none.
std::size_t end_before(std::string_view text, std::size_t at, std::size_t least,
                       std::size_t distance) {
  for (; at > least && distance > 0; --distance) {
    do --at;
    while (at > least && inside_character(text[at]));
  }
  while (at > least && !ends_sentence(text[at])) --at;
  return at > least ? at + 1 : least;
}

// End of the first sentence that ends `distance` characters or more behind `at`.
std::size_t end_behind(std::string_view text, std::size_t at, std::size_t distance) {
  for (; at < text.size() && distance > 0; --distance) {
    do ++at;
    while (at < text.size() && inside_character(text[at]));
  }
  while (at < text.size() && !ends_sentence(text[at])) ++at;
  return std::min(at + 1, text.size());
}

bool is_longer(std::string_view text, std::size_t characters) {
  // A character has at most four bytes.
  return text.size() > 4 * characters || count_characters(text) > characters;
}

// The first word at or behind the byte `begin`, from word `at` on.
std::size_t word_behind(const std::vector<PlacedWord>& words, std::size_t at, std::size_t begin) {
  while (at < words.size() && words[at].begin < begin) ++at;
  return at;
}

}  // namespace

EvaluationGrams::EvaluationGrams(const ContaminationOptions& options) : options_(options) {
  if (options.least_words < 1 || options.least_words > options.most_words) {
    throw ConfigError("decontamination: least words are from 1 to the most words of an n-gram");
  }
  lengths_.resize(static_cast<std::size_t>(options.most_words) + 1);
}

void EvaluationGrams::add(std::string_view text) {
  const std::vector<PlacedWord> words = words_of(text);
  if (words.size() < static_cast<std::size_t>(options_.least_words)) return;
  const std::size_t n = std::min(words.size(), static_cast<std::size_t>(options_.most_words));
  lengths_[n] = true;
  for (std::size_t i = 0; i + n <= words.size(); ++i) {
    std::uint64_t gram = 0;
    for (std::size_t k = 0; k < n; ++k) gram = extend(gram, words[i + k].hash);
    numbers_.emplace(gram, numbers_.size());
  }
}

bool EvaluationGrams::find_from(const std::vector<PlacedWord>& words, std::size_t at,
                                const std::vector<std::int64_t>* counts, SharedRun& run) const {
  for (std::size_t i = at; i < words.size(); ++i) {
    std::uint64_t gram = 0;
    for (std::size_t n = 1; n < lengths_.size() && i + n <= words.size(); ++n) {
      gram = extend(gram, words[i + n - 1].hash);
      if (!lengths_[n]) continue;
      const auto found = numbers_.find(gram);
      if (found == numbers_.end()) continue;
      if (counts != nullptr && (*counts)[found->second] >= options_.common) continue;
      run = {found->second, words[i].begin, words[i + n - 1].end};
      return true;
    }
  }
  return false;
}

std::vector<SharedRun> EvaluationGrams::find(std::string_view text) const {
  const std::vector<PlacedWord> words = words_of(text);
  std::vector<SharedRun> runs;
  std::size_t at = 0;
  for (SharedRun run; find_from(words, at, nullptr, run);) {
    at = word_behind(words, at, run.end);
    runs.push_back(run);
  }
  return runs;
}

std::vector<std::string_view> EvaluationGrams::pieces(
    std::string_view text, const std::vector<std::int64_t>& counts) const {
  const std::vector<PlacedWord> words = words_of(text);
  std::vector<std::string_view> pieces;
  std::size_t begin = 0, at = 0;
  for (SharedRun run; find_from(words, at, &counts, run);) {
    const std::size_t end = end_before(text, run.begin, begin, options_.cut_characters);
    const std::string_view first = text.substr(begin, end - begin);
    if (is_longer(first, options_.least_characters)) pieces.push_back(first);
    begin = end_behind(text, run.end, options_.cut_characters);
    at = word_behind(words, at, begin);
    if (!is_longer(text.substr(begin), options_.least_characters)) return pieces;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

}  // namespace sluice
