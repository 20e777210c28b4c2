#include "configs/value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/bytes.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "configs/interpolate.hpp"
#include "configs/interval.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice {
namespace {

using Read = std::variant<Value, Mismatch>;

// Both bounds to the last digit, since the message is about a value just outside.
std::string whole_interval(const Rules& rules) {
  const std::string max = std::isfinite(rules.range.max)
                              ? format_number(rules.range.max)
                              : std::to_string(std::numeric_limits<std::int64_t>::max());
  const bool bytes = rules.type == KeyType::kBytes;
  return std::string(bytes ? "a size" : "a whole number") + " from " +
         format_number(rules.range.min) + " to " + max + (bytes ? " bytes" : "");
}

Mismatch found(std::string_view text, const Rules& rules) {
  return {"found " + in_quotes(text) + ", expected " + expected_element(rules)};
}

Mismatch out_of_range(std::string_view text, const Rules& rules) {
  const bool whole = rules.type == KeyType::kCount || rules.type == KeyType::kBytes;
  // 0 of a budget could mean no limit or no memory.
  const bool budget =
      text.starts_with('0') && rules.type == KeyType::kBytes && rules.zero_word == "none";
  return {in_quotes(text) + " is out of range, expected " +
          (whole ? whole_interval(rules) : expected_element(rules)) +
          (budget ? "; write none for no limit, or 1 where nothing may be" : "")};
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

// -12, +12, 12: digits alone. nullopt for other text; overflow is reported separately.
struct Whole {
  std::int64_t value = 0;
  bool overflow = false;
};
std::optional<Whole> read_whole(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.starts_with("+") || text.starts_with("-+")) return std::nullopt;
  Whole whole;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole.value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::invalid_argument) return std::nullopt;
  whole.overflow = error == std::errc::result_out_of_range;
  return whole;
}

Read read_count(const Rules& rules, std::string_view text, bool bytes) {
  std::int64_t value = 0;
  if (const auto whole = read_whole(text)) {
    if (whole->overflow) return out_of_range(text, rules);
    value = whole->value;
  } else if (const auto scaled = bytes ? parse_bytes(text) : parse_count(text)) {
    value = *scaled;
  } else {
    return found(text, rules);
  }
  if (!rules.range.holds(static_cast<double>(value))) return out_of_range(text, rules);
  return Value(value);
}

enum class NumberError { kNone, kNotANumber, kOutOfRange };

std::pair<double, NumberError> read_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  // from_chars also takes "inf" and "nan(...)", which no key does.
  const bool starts_well = !text.empty() &&
                           text.find_first_not_of("0123456789+-.eE") == text.npos &&
                           !text.starts_with('+');
  if (!starts_well) return {0, NumberError::kNotANumber};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    return {0, NumberError::kNotANumber};
  }
  return {value, error == std::errc() ? NumberError::kNone : NumberError::kOutOfRange};
}

Read read_float(const Rules& rules, std::string_view text) {
  const auto [value, error] = read_number(text);
  if (error == NumberError::kNotANumber) return found(text, rules);
  if (error == NumberError::kOutOfRange || !rules.range.holds(value)) {
    return out_of_range(text, rules);
  }
  return Value(value);
}

Read read_rate_or_share(const Rules& rules, std::string_view text) {
  if (text.ends_with('%')) {
    const auto rate = read_rate(text);
    return rate ? Read(Value(write_rate(*rate))) : found(text, rules);
  }
  const Read number = read_float(rules, text);
  const Value* const value = std::get_if<Value>(&number);
  return value == nullptr ? number : Value(write_rate(std::get<double>(*value)));
}

Read read_seconds(const Rules& rules, std::string_view text) {
  std::string_view number = text;
  double factor = 1;
  if (!number.empty()) {
    const char unit = number.back();
    factor = unit == 'm' ? 60 : unit == 'h' ? 3600 : 1;
    if (is_one_of(number.substr(number.size() - 1), {"s", "m", "h"})) number.remove_suffix(1);
  }
  const auto [value, error] = read_number(number);
  if (error == NumberError::kNotANumber) return found(text, rules);
  if (error == NumberError::kOutOfRange || !rules.range.holds(value * factor)) {
    return out_of_range(text, rules);
  }
  return Value(value * factor);
}

Read read_bool(const Rules& rules, std::string_view text) {
  if (text == "true") return Value(true);
  if (text == "false") return Value(false);
  Mismatch mismatch = found(text, rules);
  if (is_one_of(text, {"yes", "Yes", "YES", "on", "On", "ON", "True", "TRUE", "y", "1"})) {
    mismatch.what += "; did you mean 'true'?";
  } else if (is_one_of(text, {"no", "No", "NO", "off", "Off", "OFF", "False", "FALSE", "n", "0"})) {
    mismatch.what += "; did you mean 'false'?";
  }
  return mismatch;
}

Read read_enum(const Rules& rules, std::string_view text) {
  for (std::size_t i = 0; i < rules.choices.size(); ++i) {
    if (rules.choices[i] == text) return Value(static_cast<std::int64_t>(i));
  }
  Mismatch mismatch = found(text, rules);
  const auto word = word_for_foreign(text);
  const bool is_choice =
      word && std::find(rules.choices.begin(), rules.choices.end(), *word) != rules.choices.end();
  if (const auto near = is_choice ? word : nearest(text, rules.choices)) {
    mismatch.what += "; did you mean '" + std::string(*near) + "'?";
  }
  return mismatch;
}

// A folder that is really named ~ is taken.
bool is_home_of_shell(std::string_view path) {
  std::error_code ignored;
  return path.starts_with("~/") && !std::filesystem::exists(path, ignored);
}

Read read_path(const Rules& rules, std::string_view text) {
  const bool may_be_empty = rules.type == KeyType::kPath && rules.may_be_empty;
  if (text.empty() && !may_be_empty) return found(text, rules);
  if (!is_clean_text(text, false)) {
    return Mismatch{in_quotes(text) + " holds control characters, expected " +
                    expected_element(rules)};
  }
  if (rules.noun == "path" && is_home_of_shell(text)) {
    return Mismatch{in_quotes(text) + " is not there: only a shell knows what ~ is; write ${HOME}" +
                    std::string(text.substr(1))};
  }
  return Value(std::string(text));
}

std::string range_text(const Range& range) {
  const bool has_min = std::isfinite(range.min);
  const bool has_max = std::isfinite(range.max);
  if (has_min && has_max) {
    return std::string(" in ") + (range.min_open ? "(" : "[") + format_number(range.min) + ", " +
           format_number(range.max) + (range.max_open ? ")" : "]");
  }
  if (has_min) return (range.min_open ? " above " : " >= ") + format_number(range.min);
  if (has_max) return (range.max_open ? " below " : " <= ") + format_number(range.max);
  return "";
}

std::string whole_range_text(const Range& range) {
  constexpr double kWorthSaying =
      1e9;  // a bound that only guards arithmetic tells a reader nothing
  std::string text = "a whole number";
  if (range.max <= kWorthSaying) {
    return text + " from " + format_number(range.min) + " to " + format_number(range.max);
  }
  return text + " >= " + format_number(range.min);
}

std::vector<std::string_view> field_names(const Rules& rules) {
  std::vector<std::string_view> names;
  for (const RecordField& field : *rules.fields) names.push_back(field.name);
  return names;
}

std::string join(const std::vector<std::string_view>& words) {
  std::string out;
  for (const std::string_view word : words) {
    out += (out.empty() ? "" : ", ") + std::string(word);
  }
  return out;
}

// Always in double quotes. REQUIRES: text without control characters, as read_path accepts.
std::string in_yaml_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : escape_interpolation(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

template <class T, class Write>
std::string list_of(const std::vector<T>& list, const Write& write) {
  std::string out = "[";
  for (std::size_t i = 0; i < list.size(); ++i) out += (i == 0 ? "" : ", ") + write(list[i]);
  return out + "]";
}

std::string write_whole(const Rules& rules, std::int64_t value) {
  if (rules.type == KeyType::kEnum) {
    return std::string(nth(rules.choices, value));
  }
  if (value == 0 && !rules.zero_word.empty()) return std::string(rules.zero_word);
  return std::to_string(value);
}

}  // namespace

std::variant<Value, Mismatch> read_scalar(const Rules& rules, std::string_view text) {
  if (!rules.zero_word.empty() && text == rules.zero_word) {
    if (rules.type == KeyType::kSteps) return Value(std::string("0"));
    return rules.type == KeyType::kFloat ? Value(0.0) : Value(std::int64_t{0});
  }
  switch (rules.type) {
    case KeyType::kCount:
    case KeyType::kCounts:
      return read_count(rules, text, false);
    case KeyType::kBytes:
      return read_count(rules, text, true);
    case KeyType::kSeconds:
      return read_seconds(rules, text);
    case KeyType::kInterval:
      if (const auto interval = read_interval(text)) return Value(write_interval(*interval));
      return found(text, rules);
    case KeyType::kSteps:
      if (const auto steps = read_steps(text)) return Value(write_steps(*steps));
      return found(text, rules);
    case KeyType::kRate:
      return read_rate_or_share(rules, text);
    case KeyType::kFloat:
    case KeyType::kFloats:
      return read_float(rules, text);
    case KeyType::kBool:
      return read_bool(rules, text);
    case KeyType::kEnum:
      return read_enum(rules, text);
    case KeyType::kPath:
    case KeyType::kPaths:
      return read_path(rules, text);
    case KeyType::kRecords:
      break;
  }
  return found(text, rules);
}

std::string expected_element(const Rules& rules) {
  const std::string or_word =
      rules.zero_word.empty() ? "" : ", or '" + std::string(rules.zero_word) + "'";
  switch (rules.type) {
    case KeyType::kCount:
    case KeyType::kCounts:
      return whole_range_text(rules.range) + or_word;
    case KeyType::kBytes:
      return "a size" + range_text(rules.range) + " such as 24GiB, 512MiB or 4096" + or_word;
    case KeyType::kSeconds:
      return "a time" + range_text(rules.range) + " such as 30s, 5m, 2h or 600";
    case KeyType::kInterval:
      return "steps such as 500, or a time such as 30min or 2h";
    case KeyType::kSteps:
      return "steps such as 500, or a share of train.steps such as 5%" + or_word;
    case KeyType::kRate:
      return "a number" + range_text(rules.range) + ", or a share of optimizer.lr such as 10%";
    case KeyType::kFloat:
    case KeyType::kFloats:
      return "a number" + range_text(rules.range) + or_word;
    case KeyType::kBool:
      return "true or false";
    case KeyType::kEnum:
      return (rules.choices.size() > 1 ? "one of " : "") + join(rules.choices);
    case KeyType::kPath:
    case KeyType::kPaths:
      return "a " + std::string(rules.noun);
    case KeyType::kRecords:
      return "a map of " + join(field_names(rules));
  }
  return "a value";
}

std::string expected(const Rules& rules) {
  if (rules.type == KeyType::kPaths) {
    return format_text("a {0} or a list of {0}s", rules.noun);
  }
  if (rules.type == KeyType::kCounts) return "a list, each " + whole_range_text(rules.range);
  if (rules.type == KeyType::kFloats) {
    const std::string least =
        rules.optional == 0 ? "" : std::to_string(rules.length - rules.optional) + " to ";
    return "a list of " + least + std::to_string(rules.length) + " numbers" +
           range_text(rules.range);
  }
  if (rules.type == KeyType::kRecords) return "a list, each " + expected_element(rules);
  return expected_element(rules);
}

std::string format_number(double value) {
  std::array<char, 32> text{};
  if (std::abs(value) < 1e15 && value == std::floor(value)) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : "?";
}

namespace {

std::string write_record(const Rules& rules, const Record& record) {
  std::string out = "{";
  for (std::size_t i = 0; i < record.values.size(); ++i) {
    const RecordField& field = (*rules.fields)[i];
    out += (i == 0 ? "" : ", ") + std::string(field.name) + ": " +
           write_value(field.rules, record.values[i]);
  }
  return out + "}";
}

}  // namespace

std::string write_value(const Rules& rules, const Value& value) {
  return std::visit(
      [&rules](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, bool>) {
          return held ? "true" : "false";
        } else if constexpr (std::is_same_v<Held, std::int64_t>) {
          return write_whole(rules, held);
        } else if constexpr (std::is_same_v<Held, double>) {
          if (held == 0 && !rules.zero_word.empty()) return std::string(rules.zero_word);
          return format_number(held);
        } else if constexpr (std::is_same_v<Held, std::string>) {
          if (rules.type == KeyType::kSteps && held == "0" && !rules.zero_word.empty()) {
            return std::string(rules.zero_word);
          }
          const bool plain = rules.type == KeyType::kInterval || rules.type == KeyType::kSteps ||
                             rules.type == KeyType::kRate;
          return plain ? held : in_yaml_quotes(held);
        } else if constexpr (std::is_same_v<Held, std::vector<double>>) {
          return list_of(held, format_number);
        } else if constexpr (std::is_same_v<Held, std::vector<std::int64_t>>) {
          return list_of(held, [](std::int64_t count) { return std::to_string(count); });
        } else if constexpr (std::is_same_v<Held, std::vector<Record>>) {
          return list_of(held, [&](const Record& record) { return write_record(rules, record); });
        } else {
          return list_of(held, [](const std::string& text) { return in_yaml_quotes(text); });
        }
      },
      value);
}

}  // namespace sluice
