#include "runtime/data/corpus/repair/repair.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/data/corpus/filters/text_parts.hpp"
#include "runtime/data/corpus/repair/html_entities.hpp"
#include "runtime/data/corpus/repair/mojibake.hpp"
#include "runtime/data/tokenizer/normalizer.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr std::size_t kLongestSegment = 1'000'000;  // characters
// Each pass may uncover more to repair ("&amp;amp;"). A text made to need many passes is left as
// the last pass leaves it.
constexpr int kMostPasses = 100;

using Replacements = std::unordered_map<char32_t, std::string>;

const Replacements& ligatures() {
  static const Replacements kLigatures{
      {0x132, "IJ"},       {0x133, "ij"},  {0x149, "\u02BCn"}, {0x1F1, "DZ"},
      {0x1F2, "Dz"},       {0x1F3, "dz"},  {0x1C4, "D\u017D"}, {0x1C5, "D\u017E"},
      {0x1C6, "d\u017E"},  {0x1C7, "LJ"},  {0x1C8, "Lj"},      {0x1C9, "lj"},
      {0x1CA, "NJ"},       {0x1CB, "Nj"},  {0x1CC, "nj"},      {0xFB00, "ff"},
      {0xFB01, "fi"},      {0xFB02, "fl"}, {0xFB03, "ffi"},    {0xFB04, "ffl"},
      {0xFB05, "\u017Ft"}, {0xFB06, "st"}};
  return kLigatures;
}

// Full-width and half-width forms, and the character of usual width.
const Replacements& widths() {
  static const Replacements kWidths = [] {
    Replacements widths{{0x3000, " "}};
    for (char32_t c = 0xFF01; c < 0xFFF0; ++c) {
      std::string text;
      append_utf8(c, text);
      const std::string usual = in_form(text, UnicodeForm::kNfkc);
      if (!usual.empty() && usual != text) widths.emplace(c, usual);
    }
    return widths;
  }();
  return kWidths;
}

bool is_single_quote(char32_t c) { return c == 0x2BC || (c >= 0x2018 && c <= 0x201B); }
bool is_double_quote(char32_t c) { return c >= 0x201C && c <= 0x201F; }
bool is_line_break(char32_t c) { return c == '\r' || c == 0x2028 || c == 0x2029 || c == 0x85; }
// Controls that are no white space, deprecated Arabic controls, annotations, the byte order mark.
bool is_stray_control(char32_t c) {
  return c < 0x09 || c == 0x0B || (c >= 0x0E && c < 0x20) || c == 0x7F ||
         (c >= 0x206A && c < 0x2070) || c == 0xFEFF || (c >= 0xFFF9 && c < 0xFFFD);
}

// Rewrites each character by `write(c, rest, out)`, which returns false to leave the character;
// `rest` begins behind the character and may be shortened.
template <class Write>
std::string rewrite(std::string_view text, const Write& write) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::size_t length = 0;
    const char32_t c = first_code_point(text, length);
    const std::string_view character = text.substr(0, length);
    text.remove_prefix(length);
    if (!write(c, text, out)) out += character;
  }
  return out;
}

std::string replaced(std::string_view text, const Replacements& by) {
  return rewrite(text, [&](char32_t c, std::string_view&, std::string& out) {
    const auto found = c < 0x80 ? by.end() : by.find(c);
    if (found == by.end()) return false;
    out += found->second;
    return true;
  });
}

std::string straight_quotes(std::string_view text) {
  return rewrite(text, [](char32_t c, std::string_view&, std::string& out) {
    if (!is_single_quote(c) && !is_double_quote(c)) return false;
    out += is_single_quote(c) ? '\'' : '"';
    return true;
  });
}

std::string unix_line_breaks(std::string_view text) {
  return rewrite(text, [](char32_t c, std::string_view& rest, std::string& out) {
    if (!is_line_break(c)) return false;
    if (c == '\r' && rest.starts_with('\n')) rest.remove_prefix(1);
    out += '\n';
    return true;
  });
}

bool is_decimal_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

// Bytes of the escape sequence behind ESC: '[', digits and semicolons, a letter. 0: none.
std::size_t escape_length(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  for (std::size_t at = 1, length = 0; at < text.size(); at += length) {
    const char32_t c = first_code_point(text.substr(at), length);
    if (c == ';' || is_decimal_digit(c)) continue;
    return c < 0x80 && is_letter(c) ? at + 1 : 0;
  }
  return 0;
}

std::string without_escapes(std::string_view text) {
  return rewrite(text, [](char32_t c, std::string_view& rest, std::string&) {
    const std::size_t length = c == 0x1B ? escape_length(rest) : 0;
    rest.remove_prefix(length);
    return length > 0;
  });
}

std::string without_controls(std::string_view text) {
  return rewrite(text,
                 [](char32_t c, std::string_view&, std::string&) { return is_stray_control(c); });
}

// Plain ASCII without a character that any rule changes.
bool is_plain(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x7F || byte == '&' || (byte < 0x20 && byte != '\n' && byte != '\t')) return false;
  }
  return true;
}

std::string repair_once(std::string text, const RepairOptions& options) {
  if (options.html) text = unescape_html(text);
  if (options.encoding) text = fix_encoding(text);
  if (options.c1_controls) text = fix_c1_controls(text);
  if (options.ligatures) text = replaced(text, ligatures());
  if (options.width) text = replaced(text, widths());
  if (options.quotes) text = straight_quotes(text);
  if (options.line_breaks) text = unix_line_breaks(text);
  if (options.terminal_escapes) text = without_escapes(text);
  if (options.controls) text = without_controls(text);
  if (options.nfc) text = in_form(std::move(text), UnicodeForm::kNfc);
  return text;
}

std::string repair_segment(std::string_view segment, const RepairOptions& options) {
  std::string text(segment);
  for (int pass = 0; pass < kMostPasses && !is_plain(text); ++pass) {
    std::string repaired = repair_once(text, options);
    if (repaired == text) break;
    text = std::move(repaired);
  }
  return text;
}

// Bytes of the next line with its end, or of the most characters of a segment.
std::size_t segment_length(std::string_view text) {
  text = text.substr(0, 4 * kLongestSegment);  // a character has at most four bytes
  const std::size_t line = std::min(text.find('\n'), text.size() - 1) + 1;
  if (line <= kLongestSegment) return line;
  std::size_t at = 0;
  for (std::size_t count = 0; at < line && count < kLongestSegment; ++count) {
    std::size_t length = 0;
    (void)first_code_point(text.substr(at), length);
    at += length;
  }
  return std::min(at, line);
}

}  // namespace

std::string repair_text(std::string_view text, const RepairOptions& options) {
  std::string out;
  out.reserve(text.size());
  RepairOptions now = options;
  while (!text.empty()) {
    const std::size_t length = segment_length(text);
    const std::string_view segment = text.substr(0, length);
    if (segment.find('<') != std::string_view::npos) now.html = false;
    out += repair_segment(segment, now);
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace sluice
