// Bytes of a configuration before YAML sees them. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "configs/yaml_tree.hpp"

namespace sluice {

// The length of the UTF-8 sequence that starts at `at`: 1..4, or 0 where it is malformed, overlong,
// a surrogate or above U+10FFFF. REQUIRES: at < text.size().
[[nodiscard]] std::size_t utf8_length(std::string_view text, std::size_t at);

// Every character that may not stand in a configuration, with its place: control characters, broken
// UTF-8, and tabs in the indentation of a line that holds more than a comment. At most 20 of them.
[[nodiscard]] std::vector<YamlProblem> find_bad_characters(std::string_view text);

}  // namespace sluice
