// Text of a model or of a file, as a terminal may show it. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Control characters other than line feed and tab as \x1b: C0, DEL, C1, and bytes that an 8-bit
// terminal takes for C1. The rest stays as it is. REQUIRES: no character is cut at either end.
[[nodiscard]] std::string escape_controls(std::string_view text);

}  // namespace sluice
