// Filters that count or change characters: nfc, spaces, length, javascript, duplicate lines.
#include <algorithm>
#include <memory>
#include <span>
#include <unordered_set>

#include "base/error.hpp"
#include "runtime/data/corpus/filters/filter_kinds.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/tokenizer/normalizer.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

class NfcFilter : public Filter {
 public:
  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    document.set_text(in_form(document.text(), UnicodeForm::kNfc));
    return std::nullopt;
  }
};

// Runs of spaces become one; line ends after a word, with a space behind, become one space.
class SpacesFilter : public Filter {
 public:
  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    const std::string& text = document.text();
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] == ' ') {
        at = std::min(text.find_first_not_of(' ', at), text.size());
        out += ' ';
      } else if (text[at] == '\n' && is_word_or_underscore(last_character({text.data(), at}))) {
        at = std::min(text.find_first_not_of('\n', at), text.size());
        if (at < text.size() && text[at] == ' ') ++at;
        out += ' ';
      } else {
        out += text[at++];
      }
    }
    document.set_text(std::move(out));
    return std::nullopt;
  }

 private:
  static bool is_word_or_underscore(char32_t c) { return c == '_' || is_word_character(c); }
};

class LengthFilter : public Filter {
 public:
  explicit LengthFilter(const FilterOptions& options)
      : min_characters_(options.number("min_characters")),
        max_characters_(options.number("max_characters")),
        min_words_(options.number("min_words")),
        max_words_(options.number("max_words")),
        min_tokens_(options.number("min_tokens")),
        max_tokens_(options.number("max_tokens")) {
    if (!min_tokens_ && !max_tokens_) return;
    const std::optional<std::string> spec = options.text("tokenizer");
    if (!spec) {
      throw ConfigError(
          "filter length counts tokens and has no tokenizer; name one (--tokenizer PATH), or count "
          "characters instead (min_tokens=off,min_characters=512)");
    }
    tokenizer_ = make_tokenizer(*spec);
  }
  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    const auto characters = static_cast<double>(document.characters());
    if (below(characters, min_characters_)) return Rejection{"min_characters", characters};
    if (above(characters, max_characters_)) return Rejection{"max_characters", characters};
    if (min_words_ || max_words_) {
      const auto words = static_cast<double>(document.words().size());
      if (below(words, min_words_)) return Rejection{"min_words", words};
      if (above(words, max_words_)) return Rejection{"max_words", words};
    }
    if (!tokenizer_) return std::nullopt;
    // The recipe of the field: eight characters a token are never few.
    if (!max_tokens_ && min_tokens_ && characters >= 8 * *min_tokens_) return std::nullopt;
    return by_tokens(document.text());
  }

 private:
  [[nodiscard]] std::optional<Rejection> by_tokens(const std::string& text) const {
    double tokens = 0;
    try {
      tokens = static_cast<double>(tokenizer_->encode(text).size());
    } catch (const TokenizeError& error) {
      return Rejection{"tokenizer", static_cast<double>(error.offset())};
    }
    if (below(tokens, min_tokens_)) return Rejection{"min_tokens", tokens};
    if (above(tokens, max_tokens_)) return Rejection{"max_tokens", tokens};
    return std::nullopt;
  }

  std::optional<double> min_characters_, max_characters_, min_words_, max_words_, min_tokens_,
      max_tokens_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

class JavascriptFilter : public Filter {
 public:
  explicit JavascriptFilter(const FilterOptions& options)
      : below_characters_(options.number("below_characters")) {}
  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    const auto characters = static_cast<double>(document.characters());
    if (below_characters_ && characters >= *below_characters_) return std::nullopt;
    if (to_lower(document.text()).find("javascript") == std::string::npos) return std::nullopt;
    return Rejection{"javascript", characters};
  }

 private:
  std::optional<double> below_characters_;
};

// Hashes of the character n-grams of a line in lower case, sorted, each once.
std::vector<std::uint64_t> line_shingles(const std::string& line, std::size_t n) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < line.size();) {
    std::size_t length = 0;
    starts.push_back(at);
    (void)first_code_point(std::string_view(line).substr(at), length);
    at += length;
  }
  starts.push_back(line.size());
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i + n < starts.size(); ++i) {
    hashes.push_back(
        hash64(std::as_bytes(std::span(line).subspan(starts[i], starts[i + n] - starts[i]))));
  }
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  return hashes;
}

double jaccard(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
  std::size_t same = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    same += *i == *j;
    *i < *j ? ++i : *j < *i ? ++j : (++i, ++j);
  }
  const std::size_t all = a.size() + b.size() - same;
  return all == 0 ? 0 : static_cast<double>(same) / static_cast<double>(all);
}

// Removes lines that the document had before. Near duplicates are looked for among the last lines
// kept, so that time is linear in the document.
class DuplicateLinesFilter : public Filter {
 public:
  explicit DuplicateLinesFilter(const FilterOptions& options)
      : min_characters_(options.number("min_characters")),
        near_(options.number("near")),
        max_removed_(options.number("max_removed")) {}
  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    const std::vector<std::string_view> lines = split_lines(document.text());
    std::unordered_set<std::uint64_t> seen;
    std::vector<std::vector<std::uint64_t>> recent;
    std::string out;
    std::size_t removed = 0;
    for (const std::string_view line : lines) {
      const std::string normal = to_lower(trim(line));
      if (!normal.empty() &&
          !below(static_cast<double>(count_characters(normal)), min_characters_) &&
          (!seen.insert(hash64(std::as_bytes(std::span(normal)))).second ||
           is_near(normal, recent))) {
        ++removed;
        continue;
      }
      out += line;
      out += '\n';
    }
    if (removed == 0) return std::nullopt;
    const double share = static_cast<double>(removed) / static_cast<double>(lines.size());
    if (above(share, max_removed_)) return Rejection{"max_removed", share};
    if (!document.text().ends_with('\n') && !out.empty()) out.pop_back();
    document.set_text(std::move(out));
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kShingle = 5;
  static constexpr std::size_t kRecentLines = 64;

  bool is_near(const std::string& line, std::vector<std::vector<std::uint64_t>>& recent) const {
    if (!near_) return false;
    std::vector<std::uint64_t> shingles = line_shingles(line, kShingle);
    for (const auto& other : recent) {
      if (jaccard(shingles, other) >= *near_) return true;
    }
    if (recent.size() == kRecentLines) recent.erase(recent.begin());
    recent.push_back(std::move(shingles));
    return false;
  }

  std::optional<double> min_characters_, near_, max_removed_;
};

}  // namespace

FilterMaker nfc_filter() {
  return {{"nfc", "Unicode normal form C", {}},
          [](const FilterOptions&) -> std::unique_ptr<Filter> {
            return std::make_unique<NfcFilter>();
          }};
}

FilterMaker spaces_filter() {
  return {{"spaces", "one space for runs of spaces and for line ends after a word", {}},
          [](const FilterOptions&) -> std::unique_ptr<Filter> {
            return std::make_unique<SpacesFilter>();
          }};
}

FilterMaker length_filter() {
  return {{"length",
           "length of the text",
           {{"min_characters", "off", "least characters"},
            {"max_characters", "off", "most characters"},
            {"min_words", "off", "least words"},
            {"max_words", "off", "most words"},
            {"min_tokens", "off", "least tokens; a text of 8 characters a token passes uncounted"},
            {"max_tokens", "off", "most tokens"},
            {"tokenizer", "off", "tokenizer that counts the tokens"}}},
          [](const FilterOptions& options) -> std::unique_ptr<Filter> {
            return std::make_unique<LengthFilter>(options);
          }};
}

FilterMaker javascript_filter() {
  return {{"javascript",
           "rejects short texts with the word javascript",
           {{"below_characters", "256", "longer texts pass; off: every text is looked at"}}},
          [](const FilterOptions& options) -> std::unique_ptr<Filter> {
            return std::make_unique<JavascriptFilter>(options);
          }};
}

FilterMaker duplicate_lines_filter() {
  return {{"duplicate_lines",
           "removes lines that the document had before, without regard to case",
           {{"min_characters", "1", "shorter lines stay"},
            {"near", "off", "least Jaccard similarity of 5-grams of a near duplicate, e.g. 0.9"},
            {"max_removed", "off", "rejects a document that loses a larger share of its lines"}}},
          [](const FilterOptions& options) -> std::unique_ptr<Filter> {
            return std::make_unique<DuplicateLinesFilter>(options);
          }};
}

}  // namespace sluice
