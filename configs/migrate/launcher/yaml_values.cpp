#include "configs/migrate/launcher/yaml_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/format.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::optional<bool> bool_word(std::string_view word) {
  constexpr std::array<std::string_view, 3> kTrue{"true", "yes", "on"};
  constexpr std::array<std::string_view, 3> kFalse{"false", "no", "off"};
  const std::string small = lower(word);
  if (std::find(kTrue.begin(), kTrue.end(), small) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), small) != kFalse.end()) return false;
  return std::nullopt;
}

bool is_json_number(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool leading_zero =
      digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9';
  const std::size_t point = text.find('.');
  const bool ends = point != std::string_view::npos &&
                    (point + 1 == text.size() || text[point + 1] < '0' || text[point + 1] > '9');
  return !digits.starts_with('.') && !text.starts_with('+') && !leading_zero && !ends;
}

// Reads a number with an optional sign, leading point or trailing point.
bool read_number(std::string_view word, HjsonNode& node) {
  std::string_view digits = word;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const std::size_t first = digits.find_first_not_of('-');
  if (first == std::string_view::npos || first > 1) return false;
  if (digits[first] != '.' && (digits[first] < '0' || digits[first] > '9')) return false;
  double number = 0;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(number)) return false;
  node.kind = Kind::kNumber;
  node.number = number;
  node.is_float = digits.find_first_of(".eE") != std::string_view::npos;
  std::int64_t whole = 0;
  const auto count = std::from_chars(digits.data(), end, whole);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (count.ec == std::errc() && count.ptr == end) {
    node.integer = whole;
  } else if (std::floor(number) == number && std::fabs(number) < kExact) {
    node.integer = static_cast<std::int64_t>(number);
  }
  if (!is_json_number(word)) {
    node.text = node.integer ? std::to_string(*node.integer) : format_text("{}", number);
  }
  return true;
}

}  // namespace

HjsonNode typed_word(std::string_view word) {
  HjsonNode node;
  node.text = word;
  if (word.empty() || word == "~" || lower(word) == "null") return node;
  if (const auto value = bool_word(word)) {
    node.kind = Kind::kBool;
    node.boolean = *value;
  } else if (!read_number(word, node)) {
    node.kind = Kind::kText;
  }
  return node;
}

HjsonNode typed_values(const YamlNode& node, std::vector<YamlProblem>& problems) {
  HjsonNode result;
  if (node.kind == YamlNode::Kind::kScalar) {
    result = typed_word(node.text);
    // PyYAML reads '' as text; the tree shows an absent value as null.
    if (node.text.empty()) result.kind = Kind::kText;
  } else if (node.kind == YamlNode::Kind::kList) {
    result.kind = Kind::kList;
    for (const YamlNode& item : node.items) result.items.push_back(typed_values(item, problems));
  } else if (node.kind == YamlNode::Kind::kMap) {
    result.kind = Kind::kObject;
    for (const YamlEntry& entry : node.entries) {
      if (result.find(entry.key.text) != nullptr) {
        problems.push_back(
            {entry.key.line, entry.key.column,
             "key " + in_quotes(entry.key.text) + " stands here a second time; keep one of them"});
        continue;
      }
      result.entries.push_back(
          {entry.key.text, entry.key.line, entry.key.column, typed_values(entry.value, problems)});
    }
  }
  result.line = node.line;
  result.column = node.column;
  return result;
}

}  // namespace sluice::migrate
