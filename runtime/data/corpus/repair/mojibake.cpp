#include "runtime/data/corpus/repair/mojibake.hpp"

#include <algorithm>
#include <optional>

#include "runtime/data/corpus/repair/code_pages.hpp"
#include "runtime/data/corpus/repair/mojibake_patterns.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_valid(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

std::string with_byte_a0(std::string_view bytes) {
  const std::string words =
      a_grave_word().replace(bytes, [](std::string_view) { return std::string("\xC3\xA0 "); });
  return spaced_utf8().replace(words, [](std::string_view match) {
    std::string fixed(match);
    std::replace(fixed.begin(), fixed.end(), ' ', '\xA0');
    return fixed;
  });
}

std::string with_marks_for_lost_bytes(std::string_view bytes) {
  return lossy_utf8().replace(bytes, [](std::string_view) { return std::string("\uFFFD"); });
}

unsigned byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}

// A surrogate pair as two sequences of three bytes (CESU-8).
bool is_pair(std::string_view bytes) {
  return bytes.size() >= 6 && byte_at(bytes, 0) == 0xED && (byte_at(bytes, 1) & 0xF0U) == 0xA0 &&
         (byte_at(bytes, 2) & 0xC0U) == 0x80 && byte_at(bytes, 3) == 0xED &&
         (byte_at(bytes, 4) & 0xF0U) == 0xB0 && (byte_at(bytes, 5) & 0xC0U) == 0x80;
}

// UTF-8, with surrogate pairs and the two bytes C0 80 for U+0000. Nothing if the bytes are neither.
std::optional<std::string> decode_variants(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    if (is_pair(bytes)) {
      append_utf8(0x10000 + ((byte_at(bytes, 1) & 0x0FU) << 16U) +
                      ((byte_at(bytes, 2) & 0x3FU) << 10U) + ((byte_at(bytes, 4) & 0x0FU) << 6U) +
                      (byte_at(bytes, 5) & 0x3FU),
                  text);
      bytes.remove_prefix(6);
    } else if (bytes.starts_with("\xC0\x80")) {
      text += '\0';
      bytes.remove_prefix(2);
    } else {
      return std::nullopt;
    }
  }
  return text;
}

// `bytes` of a page as UTF-8.
std::optional<std::string> decode_page(CodePage page, std::string bytes) {
  // In Mac Roman an en dash before a space would match.
  if (page != CodePage::kMacRoman && spaced_utf8().find(bytes)) bytes = with_byte_a0(bytes);
  if (is_windows(page)) bytes = with_marks_for_lost_bytes(bytes);
  if (bytes.find_first_of("\xED\xC0") != std::string::npos) return decode_variants(bytes);
  if (!is_valid(bytes)) return std::nullopt;
  return bytes;
}

// Repairs runs of mojibake in a text that is no mojibake as a whole.
std::string fix_embedded(std::string_view text) {
  return embedded_utf8().replace(text, [&](std::string_view match) {
    if (match.size() < text.size() && looks_like_mojibake(match)) return fix_encoding(match);
    return std::string(match);
  });
}

// Latin-1 with control characters, taken as Windows-1252. Nothing if Windows-1252 has no character
// for one of the bytes.
std::optional<std::string> latin1_as_windows(std::string_view text) {
  const std::optional<std::string> bytes = encode_text(CodePage::kLatin1, text);
  if (!bytes || bytes->find_first_of("\x81\x8D\x8F\x90\x9D") != std::string::npos) {
    return std::nullopt;
  }
  return fix_c1_controls(text);
}

std::string fix_once(std::string_view text) {
  std::string same(text);
  if (is_ascii(text) || !looks_like_mojibake(text)) return same;
  for (std::size_t p = 0; p < kCodePages; ++p) {
    const auto page = static_cast<CodePage>(p);
    std::optional<std::string> bytes = encode_text(page, text);
    if (!bytes) continue;
    if (std::optional<std::string> fixed = decode_page(page, std::move(*bytes))) return *fixed;
  }
  if (std::string fixed = fix_embedded(text); fixed != text) return fixed;
  if (std::optional<std::string> fixed = latin1_as_windows(text); fixed && *fixed != text) {
    return *fixed;
  }
  return fix_c1_controls(text);
}

}  // namespace

bool looks_like_mojibake(std::string_view text) {
  return !is_ascii(text) && unlikely_characters().find(text).has_value();
}

std::string fix_encoding(std::string_view text) {
  std::string before(text);
  for (;;) {
    std::string fixed = fix_once(before);
    if (fixed == before) return fixed;
    before = std::move(fixed);
  }
}

std::string fix_c1_controls(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    // U+0080 to U+009F are C2 80 to C2 9F.
    if (text[at] == '\xC2' && static_cast<unsigned char>(text[at + 1]) < 0xA0) {
      append_utf8(decode_byte(CodePage::kWindows1252, static_cast<std::uint8_t>(text[at + 1])),
                  out);
      at += 2;
    } else {
      out += text[at++];
    }
  }
  return out;
}

}  // namespace sluice
