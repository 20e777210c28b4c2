// Named characters of HTML 5: "name code" with spaces between, the code in hexadecimal, two codes
// with
// '+'. Source: the table of named character references of the WHATWG standard.
#pragma once

#include <string_view>

namespace sluice {

[[nodiscard]] std::string_view html_names_first();
[[nodiscard]] std::string_view html_names_second();

}  // namespace sluice
