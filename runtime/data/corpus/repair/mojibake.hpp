// Mojibake: UTF-8 that was read in a single-byte code page, such as "Ã©" for "é". The rules, the
// order of the steps and the sets of characters are those of ftfy 6.3. Texts are valid UTF-8.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Does the text hold a sequence of characters that is hardly ever meant?
[[nodiscard]] bool looks_like_mojibake(std::string_view text);
// Reads the text in the page it was not written in, as long as that helps.
[[nodiscard]] std::string fix_encoding(std::string_view text);
// Control characters U+0080 to U+009F as the characters of Windows-1252.
[[nodiscard]] std::string fix_c1_controls(std::string_view text);

}  // namespace sluice
