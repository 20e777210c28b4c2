// Character references of HTML: "&eacute;", "&#233;", "&#xE9;". Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Replaces references that end with a semicolon. A name of small letters may also stand in
// capitals,
// "&EACUTE;", for the capital character. A reference without a character stays.
[[nodiscard]] std::string unescape_html(std::string_view text);

}  // namespace sluice
