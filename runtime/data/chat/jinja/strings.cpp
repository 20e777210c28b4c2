#include "runtime/data/chat/jinja/strings.hpp"

#include <algorithm>

#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice::jinja {
namespace {

char32_t code_of(std::string_view character) {
  if (character.size() == 1) return static_cast<unsigned char>(character[0]);
  std::size_t length = 0;
  return first_code_point(character, length);
}

bool is_stripped(std::string_view character, std::string_view set) {
  if (character.size() == 1 && static_cast<unsigned char>(character[0]) >= 0x80) return false;
  if (set.empty()) return is_space(code_of(character));
  const auto members = characters_of(set);
  return std::find(members.begin(), members.end(), character) != members.end();
}

// Pairs of Latin-1, Latin Extended-A, Greek and Cyrillic whose codes differ regularly.
char32_t upper_of(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  if ((c >= 0xE0 && c <= 0xFE && c != 0xF7) || (c >= 0x3B1 && c <= 0x3C9 && c != 0x3C2)) {
    return c - 32;
  }
  if (c >= 0x430 && c <= 0x44F) return c - 32;
  if (c >= 0x450 && c <= 0x45F) return c - 80;
  if (c >= 0x100 && c <= 0x137 && c != 0x131) return c & ~char32_t{1};
  return c;
}

char32_t lower_of(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if ((c >= 0xC0 && c <= 0xDE && c != 0xD7) || (c >= 0x391 && c <= 0x3A9 && c != 0x3A2)) {
    return c + 32;
  }
  if (c >= 0x410 && c <= 0x42F) return c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  if (c >= 0x100 && c <= 0x137 && c != 0x130 && c != 0x131) return c | 1;
  return c;
}

template <typename Map>
std::string mapped(std::string_view text, Map&& map) {
  std::string out;
  out.reserve(text.size());
  for (const std::string_view character : characters_of(text)) {
    if (character.size() == 1 && static_cast<unsigned char>(character[0]) >= 0x80) {
      out += character;
    } else {
      append_utf8(map(code_of(character)), out);
    }
  }
  return out;
}

}  // namespace

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (; !text.empty(); text.remove_prefix(characters.back().size())) {
    characters.push_back(text.substr(0, character_length(text)));
  }
  return characters;
}

std::int64_t length_of(std::string_view text) {
  std::int64_t length = 0;
  for (; !text.empty(); ++length) text.remove_prefix(character_length(text));
  return length;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view strip(std::string_view text, std::string_view set, bool left, bool right) {
  while (left && !text.empty()) {
    const std::size_t step = character_length(text);
    if (!is_stripped(text.substr(0, step), set)) break;
    text.remove_prefix(step);
  }
  while (right && !text.empty()) {
    std::size_t step = 1;
    while (step < 4 && step < text.size() && (text[text.size() - step] & 0xC0) == 0x80) ++step;
    const std::string_view last = text.substr(text.size() - step);
    if (character_length(last) != step || !is_stripped(last, set)) break;
    text.remove_suffix(step);
  }
  return text;
}

std::string to_upper(std::string_view text) { return mapped(text, upper_of); }
std::string to_lower(std::string_view text) { return mapped(text, lower_of); }

std::string to_title(std::string_view text) {
  bool inside = false;
  return mapped(text, [&](char32_t c) {
    const bool letter = upper_of(c) != lower_of(c);
    const char32_t result = inside ? lower_of(c) : upper_of(c);
    inside = letter;
    return result;
  });
}

std::string capitalized(std::string_view text) {
  bool first = true;
  return mapped(text, [&](char32_t c) {
    const char32_t result = first ? upper_of(c) : lower_of(c);
    first = false;
    return result;
  });
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t most) {
  std::string out;
  std::size_t at = 0;
  for (; most != 0; --most) {
    std::size_t found = text.find(from, at);
    if (from.empty()) {  // before each character and at the end
      out += to;
      if (at == text.size()) return out;
      found = at + character_length(text.substr(at));
      out += text.substr(at, found - at);
      at = found;
      continue;
    }
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

}  // namespace sluice::jinja
