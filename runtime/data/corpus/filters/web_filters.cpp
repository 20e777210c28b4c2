// Rules of C4 (Raffel et al. 2020, section 2.2) and FineWeb (Penedo et al. 2024, section 3.5).
#include <algorithm>
#include <array>
#include <memory>
#include <unordered_set>

#include "runtime/data/corpus/filters/filter_kinds.hpp"

namespace sluice {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

// The line without "[12]", "[]", "[edit]" and "[citation needed]".
std::string without_citations(std::string_view line) {
  std::string out;
  while (!line.empty()) {
    const std::size_t open = std::min(line.find('['), line.size());
    out.append(line, 0, open);
    line.remove_prefix(open);
    if (line.empty()) break;
    std::size_t end = 1;
    while (end < line.size() && is_ascii_digit(line[end])) ++end;
    std::size_t used = end < line.size() && line[end] == ']' ? end + 1 : 0;
    for (const std::string_view word : {"[edit]", "[citation needed]"}) {
      if (line.starts_with(word)) used = word.size();
    }
    if (used == 0) out += line[0];
    line.remove_prefix(std::max<std::size_t>(used, 1));
  }
  return out;
}

// A sentence ends with . ! or ? and closing quotes or brackets, before white space or the end. Text
// behind the last one is a sentence.
std::size_t count_sentences(std::string_view line) {
  static constexpr std::string_view kEnds = ".!?", kCloses = "\"')]";
  std::size_t count = 0;
  bool text = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (kEnds.find(line[i]) == std::string_view::npos) {
      text = text || line[i] > ' ' || static_cast<unsigned char>(line[i]) >= 0x80;
      continue;
    }
    while (i + 1 < line.size() && (kEnds.find(line[i + 1]) != std::string_view::npos ||
                                   kCloses.find(line[i + 1]) != std::string_view::npos)) {
      ++i;
    }
    if (i + 1 < line.size() && line[i + 1] != ' ' && line[i + 1] != '\t') continue;
    count += text;
    text = false;
  }
  return count + text;
}

struct SpacedWords {
  std::size_t count = 0, longest = 0;
};

// Words between white space.
SpacedWords spaced_words(std::string_view line) {
  SpacedWords words;
  while (!(line = trim(line)).empty()) {
    std::size_t end = 0;
    while (end < line.size() && static_cast<unsigned char>(line[end]) > ' ') ++end;
    ++words.count;
    words.longest = std::max(words.longest, count_characters(line.substr(0, end)));
    line.remove_prefix(std::max<std::size_t>(end, 1));
  }
  return words;
}

class C4Filter : public Filter {
 public:
  explicit C4Filter(const FilterOptions& options)
      : end_punctuation_(options.flag("end_punctuation")),
        citations_(options.flag("citations")),
        lorem_ipsum_(options.flag("lorem_ipsum")),
        javascript_(options.flag("javascript")),
        curly_bracket_(options.flag("curly_bracket")),
        policy_(options.flag("policy")),
        min_line_words_(options.number("min_line_words")),
        max_word_length_(options.number("max_word_length")),
        min_sentences_(options.number("min_sentences")) {}

  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    std::string out;
    std::size_t sentences = 0;
    for (const std::string_view whole : split_lines(document.text())) {
      const SpacedWords words = spaced_words(whole);
      if (above(static_cast<double>(words.longest), max_word_length_)) continue;
      const std::string line =
          citations_ ? without_citations(trim(whole)) : std::string(trim(whole));
      if (end_punctuation_ && !ends_a_sentence(line)) continue;
      if (below(static_cast<double>(words.count), min_line_words_)) continue;
      const std::string lower = to_lower(line);
      if (lorem_ipsum_ && lower.find("lorem ipsum") != std::string::npos) {
        return Rejection{"lorem_ipsum", 0};
      }
      if (javascript_ && lower.find("javascript") != std::string::npos) continue;
      if (curly_bracket_ && line.find('{') != std::string::npos) {
        return Rejection{"curly_bracket", 0};
      }
      if (policy_ && speaks_of_policy(lower)) continue;
      sentences += count_sentences(line);
      out += line;
      out += '\n';
    }
    const auto number = static_cast<double>(sentences);
    if (below(number, min_sentences_)) return Rejection{"min_sentences", number};
    document.set_text(std::string(trim(out)));
    return std::nullopt;
  }

 private:
  static bool ends_a_sentence(std::string_view line) {
    return !line.empty() &&
           std::string_view(".?!\"'").find(line.back()) != std::string_view::npos &&
           !line.ends_with("...");
  }
  static bool speaks_of_policy(std::string_view lower) {
    static constexpr std::array<std::string_view, 6> kPhrases{"terms of use",   "privacy policy",
                                                              "cookie policy",  "uses cookies",
                                                              "use of cookies", "use cookies"};
    return std::any_of(kPhrases.begin(), kPhrases.end(), [&](std::string_view phrase) {
      return lower.find(phrase) != std::string_view::npos;
    });
  }

  bool end_punctuation_, citations_, lorem_ipsum_, javascript_, curly_bracket_, policy_;
  std::optional<double> min_line_words_, max_word_length_, min_sentences_;
};

struct Range {
  char32_t first, last;
};

// Characters that end a sentence, in all scripts (Unicode's Sentence_Terminal and halfwidth forms).
constexpr Range kTerminals[] = {
    {0x21, 0x21},       {0x2E, 0x2E},       {0x3F, 0x3F},       {0x589, 0x589},
    {0x61D, 0x61F},     {0x6D4, 0x6D4},     {0x700, 0x702},     {0x7F9, 0x7F9},
    {0x837, 0x837},     {0x839, 0x839},     {0x83D, 0x83E},     {0x964, 0x965},
    {0x104A, 0x104B},   {0x1362, 0x1362},   {0x1367, 0x1368},   {0x166E, 0x166E},
    {0x1735, 0x1736},   {0x17D4, 0x17D6},   {0x17D9, 0x17DA},   {0x1803, 0x1803},
    {0x1809, 0x1809},   {0x1944, 0x1945},   {0x1AA8, 0x1AAB},   {0x1B5A, 0x1B5B},
    {0x1B5E, 0x1B5F},   {0x1B7D, 0x1B7E},   {0x1C3B, 0x1C3C},   {0x1C7E, 0x1C7F},
    {0x203C, 0x203D},   {0x2047, 0x2049},   {0x2E2E, 0x2E2E},   {0x2E3C, 0x2E3C},
    {0x2E53, 0x2E54},   {0x3002, 0x3002},   {0xA4FF, 0xA4FF},   {0xA60E, 0xA60F},
    {0xA6F3, 0xA6F3},   {0xA6F7, 0xA6F7},   {0xA876, 0xA877},   {0xA8CE, 0xA8CF},
    {0xA92F, 0xA92F},   {0xA9C8, 0xA9C9},   {0xAA5D, 0xAA5F},   {0xAAF0, 0xAAF1},
    {0xABEB, 0xABEB},   {0xFE52, 0xFE52},   {0xFE56, 0xFE57},   {0xFF01, 0xFF01},
    {0xFF0E, 0xFF0E},   {0xFF1F, 0xFF1F},   {0xFF61, 0xFF61},   {0x10A56, 0x10A57},
    {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x11047, 0x11048}, {0x110BE, 0x110C1},
    {0x11141, 0x11143}, {0x111C5, 0x111C6}, {0x111CD, 0x111CD}, {0x111DE, 0x111DF},
    {0x11238, 0x11239}, {0x1123B, 0x1123C}, {0x112A9, 0x112A9}, {0x1144B, 0x1144C},
    {0x115C2, 0x115C3}, {0x115C9, 0x115D7}, {0x11641, 0x11642}, {0x1173C, 0x1173E},
    {0x11944, 0x11944}, {0x11946, 0x11946}, {0x11A42, 0x11A43}, {0x11A9B, 0x11A9C},
    {0x11C41, 0x11C42}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F44}, {0x16A6E, 0x16A6F},
    {0x16AF5, 0x16AF5}, {0x16B37, 0x16B38}, {0x16B44, 0x16B44}, {0x16E98, 0x16E98},
    {0x1BC9F, 0x1BC9F}, {0x1DA88, 0x1DA88}};

bool is_terminal(char32_t c) {
  const Range* range = std::lower_bound(
      std::begin(kTerminals), std::end(kTerminals), c,
      [](const Range& candidate, char32_t value) { return candidate.last < value; });
  return range != std::end(kTerminals) && range->first <= c;
}

class FineWebFilter : public Filter {
 public:
  explicit FineWebFilter(const FilterOptions& options)
      : min_punctuated_lines_(options.number("min_punctuated_lines")),
        max_short_lines_(options.number("max_short_lines")),
        short_line_(options.number("short_line").value_or(0)),
        max_duplicate_characters_(options.number("max_duplicate_characters")),
        max_lines_a_word_(options.number("max_lines_a_word")) {}

  [[nodiscard]] std::optional<Rejection> apply(Document& document) const override {
    std::size_t lines = 0, line_ends = 0, punctuated = 0, short_lines = 0, duplicate = 0;
    std::unordered_set<std::string_view> seen;
    for (std::string_view rest = document.text();;) {
      const std::size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      if (!trim(line).empty()) {
        const std::size_t characters = count_characters(line);
        ++lines;
        punctuated += is_terminal(last_character(line));
        short_lines += static_cast<double>(characters) <= short_line_;
        if (!seen.insert(line).second) duplicate += characters;
      }
      if (end == std::string_view::npos) break;
      ++line_ends;
      rest.remove_prefix(end + 1);
    }
    if (lines == 0) return Rejection{"empty", 0};
    double share = of(punctuated, lines);
    if (below(share, min_punctuated_lines_)) return Rejection{"min_punctuated_lines", share};
    share = of(short_lines, lines);
    if (above(share, max_short_lines_)) return Rejection{"max_short_lines", share};
    share = of(duplicate, document.characters() - line_ends);
    if (above(share, max_duplicate_characters_)) {
      return Rejection{"max_duplicate_characters", share};
    }
    share = of(line_ends, document.words().size());
    if (above(share, max_lines_a_word_)) return Rejection{"max_lines_a_word", share};
    return std::nullopt;
  }

 private:
  static double of(std::size_t part, std::size_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }

  std::optional<double> min_punctuated_lines_, max_short_lines_;
  double short_line_;
  std::optional<double> max_duplicate_characters_, max_lines_a_word_;
};

}  // namespace

FilterMaker c4_filter() {
  return {{"c4",
           "rules of C4: removes lines, rejects texts",
           {{"end_punctuation", "on", "removes lines that do not end with . ! ? or a quote"},
            {"citations", "on", "removes [1], [edit] and [citation needed]"},
            {"lorem_ipsum", "on", "rejects texts with lorem ipsum"},
            {"javascript", "on", "removes lines with the word javascript"},
            {"curly_bracket", "on", "rejects texts with {"},
            {"policy", "on", "removes lines about cookies, privacy and terms of use"},
            {"min_line_words", "3", "removes lines with fewer words"},
            {"max_word_length", "1000", "removes lines with a longer word"},
            {"min_sentences", "5", "least sentences of the lines that stay"}}},
          [](const FilterOptions& options) -> std::unique_ptr<Filter> {
            return std::make_unique<C4Filter>(options);
          }};
}

FilterMaker fineweb_filter() {
  return {{"fineweb",
           "rules of FineWeb",
           {{"min_punctuated_lines", "0.12", "least share of lines that end a sentence"},
            {"max_short_lines", "0.67", "largest share of short lines"},
            {"short_line", "30", "most characters of a short line"},
            {"max_duplicate_characters", "0.01", "largest share of characters in repeated lines"},
            {"max_lines_a_word", "0.3", "most line ends a word"}}},
          [](const FilterOptions& options) -> std::unique_ptr<Filter> {
            return std::make_unique<FineWebFilter>(options);
          }};
}

}  // namespace sluice
