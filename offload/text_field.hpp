// Texts in the fixed fields of what lies on NVMe: docs/formats/swap_file.md. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace sluice {

// Cut to the field's size less one byte. REQUIRES: a field of zeros.
template <std::size_t N>
void put_text(char (&field)[N], const std::string& text) {
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

// Up to the first zero; a field without one whole.
template <std::size_t N>
[[nodiscard]] std::string get_text(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

}  // namespace sluice
