// Quality and repetition rules of Gopher (Rae et al. 2021, appendix A.1.1 and table A1), as FineWeb
// applies them.
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "runtime/data/corpus/filters/filter_kinds.hpp"
#include "runtime/data/hash.hpp"

namespace sluice {
namespace {

double ratio(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::size_t count_of(std::string_view text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string_view::npos;) {
    ++count;
    at += what.size();
  }
  return count;
}

constexpr std::string_view kEllipsis = "\u2026", kDots = "...", kBullet = "\u2022";

class GopherQualityFilter : public Filter {
 public:
  explicit GopherQualityFilter(const FilterOptions& options)
      : min_words_(options.number("min_words")),
        max_words_(options.number("max_words")),
        min_word_length_(options.number("min_word_length")),
        max_word_length_(options.number("max_word_length")),
        max_hashes_(options.number("max_hashes")),
        max_ellipses_(options.number("max_ellipses")),
        max_bullet_lines_(options.number("max_bullet_lines")),
        max_ellipsis_lines_(options.number("max_ellipsis_lines")),
        min_letter_words_(options.number("min_letter_words")),
        min_stop_words_(options.number("min_stop_words")) {
    for (std::string& word : options.list("stop_words")) stop_words_.insert(std::move(word));
  }

  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    const std::vector<Word>& words = document.words();
    if (const auto rejected = by_words(words)) return rejected;
    if (const auto rejected = by_symbols(document.text(), words.size())) return rejected;
    if (const auto rejected = by_lines(document.text())) return rejected;
    const auto with_letter = static_cast<std::size_t>(
        std::count_if(words.begin(), words.end(), [](const Word& word) { return word.letter; }));
    const double share = ratio(with_letter, words.size());
    if (below(share, min_letter_words_)) return Rejection{"min_letter_words", share};
    std::unordered_set<std::string_view> found;
    for (const Word& word : words) {
      const auto stop = stop_words_.find(std::string(word.text));
      if (stop != stop_words_.end()) found.insert(*stop);
    }
    const auto stops = static_cast<double>(found.size());
    if (below(stops, min_stop_words_)) return Rejection{"min_stop_words", stops};
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<Rejection> by_words(const std::vector<Word>& words) const {
    std::size_t count = 0, characters = 0;
    for (const Word& word : words) {
      if (word.symbols) continue;
      ++count;
      characters += word.characters;
    }
    const auto number = static_cast<double>(count);
    if (below(number, min_words_)) return Rejection{"min_words", number};
    if (above(number, max_words_)) return Rejection{"max_words", number};
    const double length = ratio(characters, count);
    if (below(length, min_word_length_)) return Rejection{"min_word_length", length};
    if (above(length, max_word_length_)) return Rejection{"max_word_length", length};
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Rejection> by_symbols(std::string_view text,
                                                    std::size_t words) const {
    const double hashes = ratio(count_of(text, "#"), words);
    if (above(hashes, max_hashes_)) return Rejection{"max_hashes", hashes};
    const double ellipses = ratio(count_of(text, kDots) + count_of(text, kEllipsis), words);
    if (above(ellipses, max_ellipses_)) return Rejection{"max_ellipses", ellipses};
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Rejection> by_lines(std::string_view text) const {
    const std::vector<std::string_view> lines = split_lines(text);
    std::size_t bullets = 0, ellipses = 0;
    for (const std::string_view line : lines) {
      const std::string_view inner = trim(line);
      bullets += inner.starts_with(kBullet) || inner.starts_with('-');
      ellipses += inner.ends_with(kDots) || inner.ends_with(kEllipsis);
    }
    const double bulleted = ratio(bullets, lines.size());
    if (above(bulleted, max_bullet_lines_)) return Rejection{"max_bullet_lines", bulleted};
    const double open = ratio(ellipses, lines.size());
    if (above(open, max_ellipsis_lines_)) return Rejection{"max_ellipsis_lines", open};
    return std::nullopt;
  }

  std::optional<double> min_words_, max_words_, min_word_length_, max_word_length_, max_hashes_,
      max_ellipses_, max_bullet_lines_, max_ellipsis_lines_, min_letter_words_, min_stop_words_;
  std::unordered_set<std::string> stop_words_;
};

struct Repeated {
  std::size_t parts = 0, of = 0, characters = 0;
};

// Parts that equal an earlier part.
Repeated repeated(const std::vector<std::string_view>& parts) {
  Repeated result;
  result.of = parts.size();
  std::unordered_set<std::string_view> seen;
  for (const std::string_view part : parts) {
    if (seen.insert(part).second) continue;
    ++result.parts;
    result.characters += count_characters(part);
  }
  return result;
}

// Parts between runs of at least `least` line ends.
std::vector<std::string_view> split_at_line_ends(std::string_view text, std::size_t least) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_not_of('\n', at), text.size());
    if (end - at >= least) {
      parts.push_back(text.substr(begin, at - begin));
      begin = end;
    }
    at = end;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const std::array<std::uint64_t, 2> both{a, b};
  return hash64(std::as_bytes(std::span(both)));
}

// N-grams of words by their hashes, for n that grows.
class NGrams {
 public:
  explicit NGrams(const std::vector<Word>& words) : before_{0} {
    for (const Word& word : words) {
      words_.push_back(hash64(std::as_bytes(std::span(word.text))));
      before_.push_back(before_.back() + word.characters);
    }
    grams_ = words_;
  }
  void grow_to(std::size_t n) {
    for (; n_ < n && !grams_.empty(); ++n_) {
      grams_.pop_back();
      for (std::size_t i = 0; i < grams_.size(); ++i) grams_[i] = mix(grams_[i], words_[i + n_]);
    }
  }
  // Characters of the most frequent n-gram, the first one of several, a space between words, times
  // its count.
  [[nodiscard]] std::size_t top_characters() const {
    std::unordered_map<std::uint64_t, std::size_t> counts;
    std::size_t most = 0;
    for (const std::uint64_t gram : grams_) most = std::max(most, ++counts[gram]);
    for (std::size_t i = 0; i < grams_.size(); ++i) {
      if (counts[grams_[i]] == most) return most * (characters(i) + n_ - 1);
    }
    return 0;
  }
  // Characters of the n-grams that occurred before; each character counts once.
  [[nodiscard]] std::size_t repeated_characters() const {
    std::unordered_set<std::uint64_t> seen;
    std::size_t sum = 0;
    for (std::size_t i = 0; i < grams_.size();) {
      const bool fresh = seen.insert(grams_[i]).second;
      sum += fresh ? 0 : characters(i);
      i += fresh ? 1 : n_;
    }
    return sum;
  }

 private:
  [[nodiscard]] std::size_t characters(std::size_t i) const { return before_[i + n_] - before_[i]; }

  std::vector<std::uint64_t> words_, grams_;
  std::vector<std::size_t> before_;  // characters of the words before a word
  std::size_t n_ = 1;
};

constexpr std::size_t kFirstTop = 2, kFirstRepeated = 5;
constexpr std::array<std::string_view, 3> kTopRules{"top_2_gram", "top_3_gram", "top_4_gram"};
constexpr std::array<std::string_view, 6> kRepeatedRules{"repeated_5_grams", "repeated_6_grams",
                                                         "repeated_7_grams", "repeated_8_grams",
                                                         "repeated_9_grams", "repeated_10_grams"};

class GopherRepetitionFilter : public Filter {
 public:
  explicit GopherRepetitionFilter(const FilterOptions& options)
      : lines_(options.number("lines")),
        paragraphs_(options.number("paragraphs")),
        line_characters_(options.number("line_characters")),
        paragraph_characters_(options.number("paragraph_characters")) {
    for (std::size_t i = 0; i < kTopRules.size(); ++i) top_[i] = options.number(kTopRules[i]);
    for (std::size_t i = 0; i < kRepeatedRules.size(); ++i) {
      repeated_[i] = options.number(kRepeatedRules[i]);
    }
  }

  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    const std::size_t characters = document.characters();
    const Repeated paragraphs = repeated(split_at_line_ends(trim(document.text()), 2));
    double share = ratio(paragraphs.parts, paragraphs.of);
    if (above(share, paragraphs_)) return Rejection{"paragraphs", share};
    share = ratio(paragraphs.characters, characters);
    if (above(share, paragraph_characters_)) return Rejection{"paragraph_characters", share};
    const Repeated lines = repeated(split_at_line_ends(document.text(), 1));
    share = ratio(lines.parts, lines.of);
    if (above(share, lines_)) return Rejection{"lines", share};
    share = ratio(lines.characters, characters);
    if (above(share, line_characters_)) return Rejection{"line_characters", share};
    return by_n_grams(document.words(), characters);
  }

 private:
  [[nodiscard]] std::optional<Rejection> by_n_grams(const std::vector<Word>& words,
                                                    std::size_t characters) const {
    NGrams grams(words);
    for (std::size_t i = 0; i < top_.size(); ++i) {
      grams.grow_to(kFirstTop + i);
      if (!top_[i]) continue;
      const double share = ratio(grams.top_characters(), characters);
      if (above(share, top_[i])) return Rejection{kTopRules[i], share};
    }
    for (std::size_t i = 0; i < repeated_.size(); ++i) {
      grams.grow_to(kFirstRepeated + i);
      if (!repeated_[i]) continue;
      const double share = ratio(grams.repeated_characters(), characters);
      if (above(share, repeated_[i])) return Rejection{kRepeatedRules[i], share};
    }
    return std::nullopt;
  }

  std::optional<double> lines_, paragraphs_, line_characters_, paragraph_characters_;
  std::array<std::optional<double>, kTopRules.size()> top_;
  std::array<std::optional<double>, kRepeatedRules.size()> repeated_;
};

}  // namespace

FilterMaker gopher_quality_filter() {
  return {{"gopher_quality",
           "quality rules of Gopher",
           {{"min_words", "50", "least words, symbols apart"},
            {"max_words", "100000", "most words, symbols apart"},
            {"min_word_length", "3", "least mean characters of a word"},
            {"max_word_length", "10", "most mean characters of a word"},
            {"max_hashes", "0.1", "most '#' a word"},
            {"max_ellipses", "0.1", "most ellipses a word"},
            {"max_bullet_lines", "0.9", "largest share of lines that begin with a bullet"},
            {"max_ellipsis_lines", "0.3", "largest share of lines that end with an ellipsis"},
            {"min_letter_words", "0.8", "least share of words with a letter"},
            {"min_stop_words", "2", "least different stop words"},
            {"stop_words", "the|be|to|of|and|that|have|with", "the stop words"}}},
          [](const FilterOptions& options) -> std::unique_ptr<Filter> {
            return std::make_unique<GopherQualityFilter>(options);
          }};
}

FilterMaker gopher_repetition_filter() {
  return {{"gopher_repetition",
           "repetition rules of Gopher: largest shares of the text",
           {{"lines", "0.3", "of lines that repeat a line"},
            {"paragraphs", "0.3", "of paragraphs that repeat a paragraph"},
            {"line_characters", "0.2", "of characters in repeated lines"},
            {"paragraph_characters", "0.2", "of characters in repeated paragraphs"},
            {"top_2_gram", "0.2", "of characters in the most frequent pair of words"},
            {"top_3_gram", "0.18", "the same for three words"},
            {"top_4_gram", "0.16", "the same for four words"},
            {"repeated_5_grams", "0.15", "of characters in repeated runs of five words"},
            {"repeated_6_grams", "0.14", "the same for six words"},
            {"repeated_7_grams", "0.13", "the same for seven words"},
            {"repeated_8_grams", "0.12", "the same for eight words"},
            {"repeated_9_grams", "0.11", "the same for nine words"},
            {"repeated_10_grams", "0.1", "the same for ten words"}}},
          [](const FilterOptions& options) -> std::unique_ptr<Filter> {
            return std::make_unique<GopherRepetitionFilter>(options);
          }};
}

}  // namespace sluice
