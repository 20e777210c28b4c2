#include "runtime/generate/terminal_text.hpp"

#include <cstddef>
#include <cstdint>

#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

bool is_control(char32_t code) {
  constexpr char32_t kDel = 0x7F, kLastC1 = 0x9F;
  if (code < 0x20) return code != U'\n' && code != U'\t';
  return code >= kDel && code <= kLastC1;
}

void append_escape(char32_t code, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\x";
  out += kDigits[code >> 4U & 0xFU];
  out += kDigits[code & 0xFU];
}

}  // namespace

std::string escape_controls(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t length = 1;
    char32_t code = static_cast<std::uint8_t>(text[0]);
    if (valid_utf8_prefix(text.substr(0, 4)) > 0) code = first_code_point(text, length);
    if (is_control(code)) {
      append_escape(code, out);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace sluice
