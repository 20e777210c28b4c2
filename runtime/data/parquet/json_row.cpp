#include "runtime/data/parquet/json_row.hpp"

#include <arrow/api.h>

#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

namespace sluice {
namespace {

constexpr int kDeepestType = 64;

template <typename Number>
void append_number(Number number, std::string& out) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) {
      out += "null";
      return;
    }
  }
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

template <typename Array>
void append_number_of(const arrow::Array& array, std::int64_t row, std::string& out) {
  append_number(static_cast<const Array&>(array).Value(row), out);
}

template <typename Array>
void append_text_of(const arrow::Array& array, std::int64_t row, std::string& out) {
  append_json_text(static_cast<const Array&>(array).GetView(row), out);
}

template <typename Array>
void append_list(const arrow::Array& array, std::int64_t row, std::string& out) {
  const auto& list = static_cast<const Array&>(array);
  const std::int64_t first = list.value_offset(row);
  out += '[';
  for (std::int64_t i = 0; i < list.value_length(row); ++i) {
    if (i > 0) out += ',';
    append_json_value(*list.values(), first + i, out);
  }
  out += ']';
}

void append_struct(const arrow::Array& array, std::int64_t row, std::string& out) {
  const auto& members = static_cast<const arrow::StructArray&>(array);
  out += '{';
  for (int i = 0; i < members.num_fields(); ++i) {
    if (i > 0) out += ',';
    append_json_text(members.type()->field(i)->name(), out);
    out += ':';
    append_json_value(*members.field(i), row, out);
  }
  out += '}';
}

void append_dictionary_value(const arrow::Array& array, std::int64_t row, std::string& out) {
  const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
  append_json_value(*coded.dictionary(), coded.GetValueIndex(row), out);
}

// Dates, times and decimals.
void append_other(const arrow::Array& array, std::int64_t row, std::string& out) {
  const auto scalar = array.GetScalar(row);
  if (!scalar.ok()) {
    out += "null";
    return;
  }
  append_json_text((*scalar)->ToString(), out);
}

}  // namespace

bool is_string_type(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY) {
    return is_string_type(*static_cast<const arrow::DictionaryType&>(type).value_type());
  }
  return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING ||
         type.id() == arrow::Type::STRING_VIEW;
}

bool has_json_form(const arrow::DataType& type, int depth) {
  if (depth > kDeepestType) return false;
  switch (type.id()) {
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::UINT8:
    case arrow::Type::INT8:
    case arrow::Type::UINT16:
    case arrow::Type::INT16:
    case arrow::Type::UINT32:
    case arrow::Type::INT32:
    case arrow::Type::UINT64:
    case arrow::Type::INT64:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::DATE32:
    case arrow::Type::DATE64:
    case arrow::Type::TIMESTAMP:
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
    case arrow::Type::DECIMAL32:
    case arrow::Type::DECIMAL64:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256:
      return true;
    case arrow::Type::DICTIONARY:
      return has_json_form(*static_cast<const arrow::DictionaryType&>(type).value_type(),
                           depth + 1);
    case arrow::Type::EXTENSION:
      return has_json_form(*static_cast<const arrow::ExtensionType&>(type).storage_type(),
                           depth + 1);
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
    case arrow::Type::MAP:
    case arrow::Type::STRUCT:
      for (const auto& field : type.fields()) {
        if (!has_json_form(*field->type(), depth + 1)) return false;
      }
      return true;
    default:
      return false;
  }
}

void append_json_text(std::string_view text, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += '"';
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, copied, i - copied);
    copied = i + 1;
    out += '\\';
    if (c == '\n') {
      out += 'n';
    } else if (c >= 0x20) {
      out += text[i];
    } else {
      out += "u00";
      out += kDigits[c >> 4U];
      out += kDigits[c & 15U];
    }
  }
  out.append(text, copied);
  out += '"';
}

void append_json_value(const arrow::Array& array, std::int64_t row, std::string& out) {
  if (array.IsNull(row)) {
    out += "null";
    return;
  }
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return append_text_of<arrow::StringArray>(array, row, out);
    case arrow::Type::LARGE_STRING:
      return append_text_of<arrow::LargeStringArray>(array, row, out);
    case arrow::Type::STRING_VIEW:
      return append_text_of<arrow::StringViewArray>(array, row, out);
    case arrow::Type::DICTIONARY:
      return append_dictionary_value(array, row, out);
    case arrow::Type::BOOL:
      out += static_cast<const arrow::BooleanArray&>(array).Value(row) ? "true" : "false";
      return;
    case arrow::Type::UINT8:
      return append_number_of<arrow::UInt8Array>(array, row, out);
    case arrow::Type::INT8:
      return append_number_of<arrow::Int8Array>(array, row, out);
    case arrow::Type::UINT16:
      return append_number_of<arrow::UInt16Array>(array, row, out);
    case arrow::Type::INT16:
      return append_number_of<arrow::Int16Array>(array, row, out);
    case arrow::Type::UINT32:
      return append_number_of<arrow::UInt32Array>(array, row, out);
    case arrow::Type::INT32:
      return append_number_of<arrow::Int32Array>(array, row, out);
    case arrow::Type::UINT64:
      return append_number_of<arrow::UInt64Array>(array, row, out);
    case arrow::Type::INT64:
      return append_number_of<arrow::Int64Array>(array, row, out);
    case arrow::Type::FLOAT:
      return append_number_of<arrow::FloatArray>(array, row, out);
    case arrow::Type::DOUBLE:
      return append_number_of<arrow::DoubleArray>(array, row, out);
    case arrow::Type::LIST:
    case arrow::Type::MAP:
      return append_list<arrow::ListArray>(array, row, out);
    case arrow::Type::LARGE_LIST:
      return append_list<arrow::LargeListArray>(array, row, out);
    case arrow::Type::FIXED_SIZE_LIST:
      return append_list<arrow::FixedSizeListArray>(array, row, out);
    case arrow::Type::STRUCT:
      return append_struct(array, row, out);
    case arrow::Type::EXTENSION:
      return append_json_value(*static_cast<const arrow::ExtensionArray&>(array).storage(), row,
                               out);
    default:
      return append_other(array, row, out);
  }
}

}  // namespace sluice
