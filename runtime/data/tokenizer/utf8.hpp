// UTF-8, as far as the tokenizers need it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// Bytes at the start of `text` that are valid UTF-8 (no overlong form, no surrogate, <= U+10FFFF).
[[nodiscard]] std::size_t valid_utf8_prefix(std::string_view text);

// The code point at the start of valid, non-empty `text`; sets its length in bytes.
[[nodiscard]] char32_t first_code_point(std::string_view text, std::size_t& length);
void append_utf8(char32_t code_point, std::string& out);

// GPT-2's alphabet writes each byte as one printable character: the 188 visible bytes of Latin-1 as
// themselves, the other 68 in order from U+0100.
[[nodiscard]] char32_t alphabet_of_byte(std::uint8_t byte);
[[nodiscard]] std::string to_alphabet(std::string_view bytes);
// The bytes written by `text`; false (and `bytes` as it was) where a character is not of the
// alphabet.
[[nodiscard]] bool from_alphabet(std::string_view text, std::string& bytes);

}  // namespace sluice
