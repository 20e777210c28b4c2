// Texts in the fixed fields of headers and records on NVMe: docs/formats/swap_file.md. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace sluice {

// Copies at most N - 1 bytes. REQUIRES: the field is all zeros.
template <std::size_t N>
void put_text(char (&field)[N], const std::string& text) {
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

// Returns the bytes before the first zero, or the whole field.
template <std::size_t N>
[[nodiscard]] std::string get_text(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

}  // namespace sluice
