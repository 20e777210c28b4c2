#include "runtime/data/corpus/filters/text_parts.hpp"

#include <utf8proc.h>

#include "base/error.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

enum class CharacterKind { kSpace, kWord, kAlone, kSymbol };

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Scripts that write no space between words.
bool stands_alone(char32_t c) {
  return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x3400 && c <= 0x9FFF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

CharacterKind kind_of(char32_t c) {
  if (c < 0x80) {
    const bool letter = (c | 0x20U) >= 'a' && (c | 0x20U) <= 'z';
    if (letter || (c >= '0' && c <= '9')) return CharacterKind::kWord;
    return is_white_space(c) ? CharacterKind::kSpace : CharacterKind::kSymbol;
  }
  if (is_white_space(c)) return CharacterKind::kSpace;
  if (!is_word_character(c)) return CharacterKind::kSymbol;
  return stands_alone(c) ? CharacterKind::kAlone : CharacterKind::kWord;
}

bool is_apostrophe(char32_t c) { return c == '\'' || c == 0x2019; }

// Is the apostrophe at the start of `text` followed by a letter?
bool joins(std::string_view text) {
  std::size_t length = 0;
  if (!is_apostrophe(first_code_point(text, length)) || length == text.size()) return false;
  return is_letter(first_code_point(text.substr(length), length));
}

// Continues `word`, which begins at the start of `text`; returns its bytes.
std::size_t word_end(std::string_view text, Word& word) {
  CharacterKind kind{};
  std::size_t at = 0;
  bool after_letter = false;
  while (at < text.size()) {
    std::size_t length = 0;
    const char32_t c = first_code_point(text.substr(at), length);
    const CharacterKind next = kind_of(c);
    if (at == 0) kind = next;
    const bool inside = kind == CharacterKind::kWord && after_letter && joins(text.substr(at));
    if (at > 0 && next != kind && !inside) break;
    after_letter = next != CharacterKind::kSymbol && is_letter(c);
    word.letter = word.letter || after_letter;
    ++word.characters;
    at += length;
    if (kind == CharacterKind::kAlone) break;
  }
  word.symbols = kind == CharacterKind::kSymbol;
  return at;
}

}  // namespace

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  if (c < 0x80) return (c | 0x20U) >= 'a' && (c | 0x20U) <= 'z';
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_word_character(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NO;
}

std::vector<Word> split_words(std::string_view text) {
  std::vector<Word> words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    if (is_white_space(first_code_point(text.substr(at), length))) {
      at += length;
      continue;
    }
    Word word;
    const std::size_t end = word_end(text.substr(at), word);
    word.text = text.substr(at, end);
    words.push_back(word);
    at += end;
  }
  return words;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80;
  return count;
}

char32_t last_character(std::string_view text) {
  if (text.empty()) return 0;
  std::size_t begin = text.size() - 1, length = 0;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80) --begin;
  return first_code_point(text.substr(begin), length);
}

std::string_view trim(std::string_view text) {
  std::size_t length = 0;
  while (!text.empty() && is_white_space(first_code_point(text, length))) {
    text.remove_prefix(length);
  }
  while (!text.empty()) {
    const char32_t last = last_character(text);
    if (!is_white_space(last)) break;
    text.remove_suffix(last < 0x80 ? 1 : last < 0x800 ? 2 : 3);
  }
  return text;
}

std::string to_lower(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char byte = text[at];
    if (static_cast<unsigned char>(byte) < 0x80) {
      lower += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte | 0x20) : byte;
      ++at;
      continue;
    }
    std::size_t length = 0;
    const char32_t c = first_code_point(text.substr(at), length);
    append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), lower);
    at += length;
  }
  return lower;
}

}  // namespace sluice
