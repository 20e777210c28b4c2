#include "configs/text_check.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace sluice {
namespace {

constexpr std::size_t kMaxProblems = 20;

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

bool is_control(unsigned byte) { return byte < 0x20 || byte == 0x7f; }

std::string hex(unsigned byte) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0x%02x", byte);
  return text.data();
}

void check_indentation(std::string_view line, int line_number, std::vector<YamlProblem>& found) {
  const std::size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos || line[first] == '#') return;
  const std::size_t tab = line.substr(0, first).find('\t');
  if (tab == std::string_view::npos) return;
  found.push_back({line_number, static_cast<int>(tab) + 1,
                   "a tab in the indentation; YAML indents with spaces only"});
}

void check_bytes(std::string_view line, int line_number, std::vector<YamlProblem>& found) {
  for (std::size_t at = 0; at < line.size();) {
    const unsigned byte = byte_at(line, at);
    const bool line_end = byte == '\r' && at + 1 == line.size();
    const std::size_t length = utf8_length(line, at);
    if (length == 0) {
      found.push_back({line_number, static_cast<int>(at) + 1,
                       "byte " + hex(byte) + " is not UTF-8; save the file as UTF-8"});
      return;  // what follows on the line is most likely of the same encoding
    }
    if (is_control(byte) && byte != '\t' && !line_end) {
      found.push_back({line_number, static_cast<int>(at) + 1,
                       "control character " + hex(byte) + "; a configuration is plain text"});
      return;
    }
    at += length;
  }
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const unsigned lead = byte_at(text, at);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, at + i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte_at(text, at + 1);
  if (lead == 0xe0 && second < 0xa0) return 0;  // overlong
  if (lead == 0xed && second > 0x9f) return 0;  // surrogates
  if (lead == 0xf0 && second < 0x90) return 0;  // overlong
  if (lead == 0xf4 && second > 0x8f) return 0;  // above U+10FFFF
  return length;
}

std::vector<YamlProblem> find_bad_characters(std::string_view text) {
  std::vector<YamlProblem> found;
  int line_number = 1;
  while (!text.empty() && found.size() < kMaxProblems) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    check_indentation(line, line_number, found);
    check_bytes(line, line_number, found);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    ++line_number;
  }
  return found;
}

bool is_clean_text(std::string_view text, bool multi_line) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const unsigned byte = byte_at(text, at);
    const bool blank = multi_line && (byte == '\t' || byte == '\n' || byte == '\r');
    if (length == 0 || (is_control(byte) && !blank)) return false;
    at += length;
  }
  return true;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (out.size() + (length == 0 ? 1 : length) > limit) return out + "...";
    if (length == 0 || is_control(byte_at(text, at))) {
      out += '?';
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

std::string in_quotes(std::string_view text, std::size_t limit) {
  std::string out = "'";
  out += printable(text, limit);
  out += '\'';
  return out;
}

}  // namespace sluice
