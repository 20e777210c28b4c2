// Makes text of a model or of a file safe for a terminal. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Escapes control characters other than line feed and tab, such as "\x1b": C0, DEL, C1, and bytes
// that an 8-bit terminal takes for C1. Other text is unchanged. REQUIRES: the text begins and ends
// with whole characters.
[[nodiscard]] std::string escape_controls(std::string_view text);

}  // namespace sluice
