// The part of UTF-8 that the tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// Length of the valid UTF-8 prefix of `text` (no overlong form, no surrogate, <= U+10FFFF).
[[nodiscard]] std::size_t valid_utf8_prefix(std::string_view text);

// Bytes of the UTF-8 character at the start of non-empty `text`; 1 if it is invalid.
[[nodiscard]] std::size_t character_length(std::string_view text);
// Each invalid byte becomes U+FFFD.
[[nodiscard]] std::string with_valid_utf8(std::string_view text);

// The code point at the start of valid, non-empty `text`; sets its length in bytes.
[[nodiscard]] char32_t first_code_point(std::string_view text, std::size_t& length);
void append_utf8(char32_t code_point, std::string& out);

// GPT-2's alphabet: each byte is one printable character. The 188 visible bytes of Latin-1 stand
// for themselves, the other 68 are U+0100 and up, in order.
[[nodiscard]] char32_t alphabet_of_byte(std::uint8_t byte);
[[nodiscard]] std::string to_alphabet(std::string_view bytes);
// Decodes the bytes that `text` writes. Returns false and leaves `bytes` unchanged if a character
// is not of the alphabet.
[[nodiscard]] bool from_alphabet(std::string_view text, std::string& bytes);

}  // namespace sluice
