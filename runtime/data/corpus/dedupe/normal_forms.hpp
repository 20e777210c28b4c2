// Forms of texts and URLs for the search for equal ones. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Lower case, one space for white space, none at the ends.
[[nodiscard]] std::string normal_text(std::string_view text);

// Scheme and host in lower case, no fragment, no white space at the ends.
[[nodiscard]] std::string normal_url(std::string_view url);

}  // namespace sluice
