// One JSON object as text: where the values of some keys lie, so that a value can be replaced and
// every other byte stays. No tree is built; nesting has no limit but the line. Thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// A value of the outermost object: bytes [begin, end) of the line. A key that occurs several times
// has its last value, as JSON readers take it.
struct JsonValue {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::string_view in(std::string_view line) const {
    return line.substr(begin, end - begin);
  }
};

struct JsonObject {
  std::vector<std::optional<JsonValue>> values;  // of the keys, in their order
  std::string error;                             // empty, or why the line is no JSON object
};

// Checks the whole line: grammar of RFC 8259, UTF-8. The range of a number is not checked.
[[nodiscard]] JsonObject scan_json_object(std::string_view line,
                                          std::span<const std::string_view> keys);

// The text of a JSON string with its quotes; nothing where `value` is no string. REQUIRES: a value
// of scan_json_object. Half a surrogate pair becomes U+FFFD.
[[nodiscard]] std::optional<std::string> json_text(std::string_view value);

// Appends `text` as a JSON string with quotes. Invalid UTF-8 becomes U+FFFD, a byte each.
void append_json_string(std::string_view text, std::string& out);

}  // namespace sluice
