// A JSON text as a value of the template language.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/value.hpp"

namespace sluice {

struct JsonValue {
  jinja::Value value;
  std::string error;  // empty, or why the text is refused
};

// Keys keep their order; of equal keys the last value counts, as in Python. Half a surrogate pair
// becomes U+FFFD. Refused: text that is no JSON, containers nested more than 100 levels deep, an
// integer that 64 bits do not hold.
[[nodiscard]] JsonValue parse_json_value(std::string_view text);

}  // namespace sluice
