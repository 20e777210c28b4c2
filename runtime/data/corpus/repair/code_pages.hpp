// Single-byte code pages in which UTF-8 is read by mistake. The Windows pages are complete: a byte
// without a character stands for the code point of its number, as browsers take it, and byte 1A
// stands for U+FFFD, the mark of a lost byte. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// In the order in which they are tried.
enum class CodePage {
  kLatin1,
  kWindows1252,
  kWindows1251,
  kWindows1250,
  kWindows1253,
  kWindows1254,
  kWindows1257,
  kLatin2,
  kMacRoman,
  kDos437,
};
inline constexpr std::size_t kCodePages = 10;

using UpperHalf = std::array<char16_t, 128>;  // of bytes 80 to FF

[[nodiscard]] bool is_windows(CodePage page);
[[nodiscard]] char32_t decode_byte(CodePage page, std::uint8_t byte);
// Nothing if the page lacks a character of `text`, which is valid UTF-8.
[[nodiscard]] std::optional<std::string> encode_text(CodePage page, std::string_view text);

}  // namespace sluice
