#include "runtime/data/corpus/repair/html_entities.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "runtime/data/corpus/repair/code_pages.hpp"
#include "runtime/data/corpus/repair/html_names.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

using EntityNames = std::unordered_map<std::string, std::string>;

constexpr std::size_t kLongestName = 24;

bool is_name_character(char c) {
  const char lower = static_cast<char>(c | 0x20);
  return (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z');
}

std::string upper_ascii(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

// Characters whose capitals are more than one.
std::string special_capitals(std::string_view name) {
  static const std::unordered_map<std::string_view, const char*> kSpecial{
      {"ffilig", "FFI"}, {"fflig", "FF"}, {"ffllig", "FFL"},   {"filig", "FI"},
      {"fllig", "FL"},   {"szlig", "SS"}, {"napos", "\u02BCN"}};
  const auto found = kSpecial.find(name);
  return found == kSpecial.end() ? "" : found->second;
}

std::string capitals_of(std::string_view name, std::string_view text) {
  std::string capitals = special_capitals(name);
  if (!capitals.empty()) return capitals;
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    const char32_t c = first_code_point(text.substr(at), length);
    append_utf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))),
                capitals);
  }
  return capitals;
}

void add_names(std::string_view list, EntityNames& names) {
  while (!list.empty()) {
    const std::size_t space = list.find(' ');
    const std::string name(list.substr(0, space));
    list.remove_prefix(space + 1);
    std::string text;
    for (char separator = '+'; separator == '+';) {
      unsigned code = 0;
      const auto end = std::from_chars(list.data(), list.data() + list.size(), code, 16).ptr;
      append_utf8(code, text);
      separator = *end;
      list.remove_prefix(static_cast<std::size_t>(end - list.data()) + 1);
    }
    names.emplace(name, text);
  }
}

// Does HTML read the beginning of the name as a reference without a semicolon?
bool begins_as_another(std::string_view capitals) {
  for (const std::string_view name : {"AMP", "COPY", "ETH", "GT", "LT", "QUOT", "REG", "THORN"}) {
    if (capitals.starts_with(name)) return true;
  }
  return false;
}

const EntityNames& all_names() {
  static const EntityNames kNames = [] {
    EntityNames names;
    add_names(html_names_first(), names);
    add_names(html_names_second(), names);
    EntityNames capitals;
    for (const auto& [name, text] : names) {
      const std::string upper = upper_ascii(name);
      const bool small = name.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos;
      if (!small || names.contains(upper) || begins_as_another(upper)) continue;
      capitals.emplace(upper, capitals_of(name, text));
    }
    names.merge(capitals);
    return names;
  }();
  return kNames;
}

bool is_noncharacter(std::uint64_t code) {
  return (code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFEU) == 0xFFFE;
}

// The character of a number, as HTML's parser takes it: controls are bytes of Windows-1252, numbers
// that are no character are U+FFFD, controls and noncharacters have no text.
std::string text_of_number(std::uint64_t code) {
  std::string text;
  const bool windows = code >= 0x80 && code <= 0x9F;
  if (code == 0 || (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) {
    append_utf8(0xFFFD, text);
  } else if (windows || code == 0x0D) {
    append_utf8(decode_byte(CodePage::kWindows1252, static_cast<std::uint8_t>(code)), text);
  } else if (!is_noncharacter(code) && code != 0x0B && code != 0x7F &&
             (code >= 0x20 || code == 9 || code == 10 || code == 12)) {
    append_utf8(static_cast<char32_t>(code), text);
  }
  return text;
}

// Of "&#...;" without '&', '#' and ';'. Nothing if it is no number.
std::optional<std::string> numeric(std::string_view digits) {
  const bool hexadecimal = digits.starts_with('x') || digits.starts_with('X');
  if (hexadecimal) digits.remove_prefix(1);
  std::uint64_t code = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), code, hexadecimal ? 16 : 10);
  if (digits.empty() || end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc() && code == ';') return std::nullopt;  // as in ftfy
  return text_of_number(error == std::errc() ? code : ~std::uint64_t{0});
}

// The text of a reference without '&' and ';'.
std::optional<std::string> text_of(std::string_view name) {
  if (name.starts_with('#')) return numeric(name.substr(1));
  const auto found = all_names().find(std::string(name));
  if (found == all_names().end()) return std::nullopt;
  return found->second;
}

}  // namespace

std::string unescape_html(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t ampersand = std::min(text.find('&'), text.size());
    out += text.substr(0, ampersand);
    text.remove_prefix(ampersand);
    if (text.empty()) break;
    const std::size_t first = text.substr(1).starts_with('#') ? 2 : 1;
    std::size_t end = first;
    while (end < text.size() && end - first <= kLongestName && is_name_character(text[end])) ++end;
    const bool reference =
        end > first && end - first <= kLongestName && end < text.size() && text[end] == ';';
    std::optional<std::string> character;
    if (reference) character = text_of(text.substr(1, end - 1));
    if (character) {
      out += *character;
      text.remove_prefix(end + 1);
    } else {
      out += '&';
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace sluice
