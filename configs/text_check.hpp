// Checks the bytes of a configuration before the YAML reader. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "configs/yaml_tree.hpp"

namespace sluice {

// The length of the UTF-8 sequence at `at`: 1..4, or 0 if it is malformed, overlong, a surrogate or
// above U+10FFFF. REQUIRES: at < text.size().
[[nodiscard]] std::size_t utf8_length(std::string_view text, std::size_t at);

// Every forbidden character with its place, at most 20: control characters, broken UTF-8, and tabs
// in the indentation of a line that holds more than a comment.
[[nodiscard]] std::vector<YamlProblem> find_bad_characters(std::string_view text);

}  // namespace sluice
