#include "runtime/data/tokenizer/utf8.hpp"

#include <array>
#include <cstring>

namespace sluice {
namespace {

// Length of the valid sequence at the start of non-empty `text`, 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  // The second byte's range excludes overlong forms, surrogates and code points over U+10FFFF.
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (at(i) < 0x80 || at(i) > 0xBF) return 0;
  }
  return length;
}

bool visible(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 256 + 68> to_byte{};

  Alphabet() {
    to_byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      of_byte[byte] = visible(byte) ? static_cast<char32_t>(byte) : next++;
      to_byte[of_byte[byte]] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t used = 0;
  while (used < text.size()) {
    std::uint64_t word = 0;
    if (text.size() - used >= sizeof word) {
      std::memcpy(&word, text.data() + used, sizeof word);
      if ((word & 0x8080808080808080U) == 0) {
        used += sizeof word;
        continue;
      }
    }
    const std::size_t length = sequence_length(text.substr(used));
    if (length == 0) break;
    used += length;
  }
  return used;
}

char32_t first_code_point(std::string_view text, std::size_t& length) {
  const auto lead = static_cast<std::uint8_t>(text[0]);
  length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  char32_t value = length == 1 ? lead : lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    value = value << 6U | (static_cast<std::uint8_t>(text[i]) & 0x3FU);
  }
  return value;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6U);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12U);
    put(0x80 | (code_point >> 6U & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18U);
    put(0x80 | (code_point >> 12U & 0x3F));
    put(0x80 | (code_point >> 6U & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return valid_utf8_prefix(text.substr(0, length)) == length ? length : 1;
}

std::string with_valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t prefix = valid_utf8_prefix(text);
    valid.append(text, 0, prefix);
    text.remove_prefix(prefix);
    if (text.empty()) break;
    valid += "\uFFFD";
    text.remove_prefix(1);
  }
  return valid;
}

char32_t alphabet_of_byte(std::uint8_t byte) { return alphabet().of_byte[byte]; }

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    append_utf8(alphabet_of_byte(static_cast<std::uint8_t>(byte)), text);
  return text;
}

bool from_alphabet(std::string_view text, std::string& bytes) {
  if (valid_utf8_prefix(text) != text.size()) return false;
  std::string result;
  while (!text.empty()) {
    std::size_t length = 0;
    const char32_t code_point = first_code_point(text, length);
    const auto& table = alphabet().to_byte;
    if (code_point >= table.size() || table[code_point] < 0) return false;
    result += static_cast<char>(table[code_point]);
    text.remove_prefix(length);
  }
  bytes = std::move(result);
  return true;
}

}  // namespace sluice
