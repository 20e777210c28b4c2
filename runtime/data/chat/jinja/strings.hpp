// Strings as the language sees them: sequences of code points, with Python's white space and
// Python's ways to write values. Strings are UTF-8. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/chat/jinja/value.hpp"

namespace sluice::jinja {

// A byte that is no UTF-8 counts as one character.
[[nodiscard]] std::vector<std::string_view> characters_of(std::string_view text);
[[nodiscard]] std::int64_t length_of(std::string_view text);

// Removes the characters of `set` from the ends; an empty set means white space.
[[nodiscard]] std::string_view strip(std::string_view text, std::string_view set, bool left,
                                     bool right);
[[nodiscard]] bool is_space(char32_t character);

// ASCII and Latin letters with a simple counterpart; other characters stay.
[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);
[[nodiscard]] std::string to_title(std::string_view text);
[[nodiscard]] std::string capitalized(std::string_view text);
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from,
                                   std::string_view to, std::int64_t most);

// str(value) and repr(value) of Python.
[[nodiscard]] std::string to_text(const Value& value);
[[nodiscard]] std::string to_source(const Value& value);

struct JsonStyle {
  std::int64_t indent = -1;  // -1: one line
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
// json.dumps(value) of Python. Throws RenderError for a value that JSON does not have.
[[nodiscard]] std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace sluice::jinja
