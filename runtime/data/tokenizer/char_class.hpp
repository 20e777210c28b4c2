// Classes of Unicode code points that split patterns distinguish, by table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

// Each code point has exactly one of the first four bits.
enum CharClass : std::uint8_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,  // White_Space
  kOther = 8,
  kNewline = 16,  // \r and \n
  kHead = 32,     // Lu, Lt, Lm, Lo, M
  kTail = 64,     // Ll, Lm, Lo, M
  kWide = 128,    // only in ByteClasses: a byte of a longer sequence
};

struct CharClasses {
  std::array<std::uint8_t, 256> of_byte{};       // ASCII; kWide for the other bytes
  std::array<std::uint8_t, 0x110000> of_code{};  // most pages are never touched
};

// Filled at the first call by PCRE2's properties, so that both agree. Thread-safe.
[[nodiscard]] const CharClasses& char_classes();

}  // namespace sluice
