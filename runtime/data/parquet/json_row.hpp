// Values of Arrow arrays as JSON. Part of libsluice_parquet.so. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace arrow {
class Array;
class DataType;
}  // namespace arrow

namespace sluice {

// True for string, large_string and string_view, plain or as a dictionary.
[[nodiscard]] bool is_string_type(const arrow::DataType& type);
// False for bytes and for types that hold bytes.
[[nodiscard]] bool has_json_form(const arrow::DataType& type, int depth = 0);

// A byte that is no UTF-8 stays as it is: the reader of the JSON line refuses the line.
void append_json_text(std::string_view text, std::string& out);
// Lists, structs, numbers, truth values and null take their JSON form. A float that is not finite
// is null. Dates, times and decimals are strings. REQUIRES: has_json_form(*array.type()).
void append_json_value(const arrow::Array& array, std::int64_t row, std::string& out);

}  // namespace sluice
