// Conversion of one value between text and C++ type, by a key's rules. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "configs/schema.hpp"

namespace sluice {

// The mistake of a value, as the rest of a message's line: "found 'x', expected ...".
struct Mismatch {
  std::string what;
};

// Reads the text of a scalar, or of one element of a list, as the key's type. An element is a
// double for kFloats, a std::int64_t for kCounts, a std::string for kPaths. REQUIRES: not kRecords,
// whose elements are maps.
[[nodiscard]] std::variant<Value, Mismatch> read_scalar(const Rules& rules, std::string_view text);

// "a whole number from 0 to 3", "one of fp32, bf16, fp16", "a path or a list of paths".
[[nodiscard]] std::string expected(const Rules& rules);
// The same for one element of a list.
[[nodiscard]] std::string expected_element(const Rules& rules);

// The value as YAML that reads back to the same value: 65536, "runs/x", [95, 5], cosine.
[[nodiscard]] std::string write_value(const Rules& rules, const Value& value);

// The shortest decimal that reads back to the same double.
[[nodiscard]] std::string format_number(double value);

}  // namespace sluice
