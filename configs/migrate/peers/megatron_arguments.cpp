#include "configs/migrate/peers/megatron_arguments.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "configs/migrate/hjson_reader.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

using Type = MegatronArgument::Type;
using Count = MegatronArgument::Count;

std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return head;
}

std::string_view without_blanks(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

KeyClass class_of(std::string_view name) {
  constexpr std::array kAll{KeyClass::kMapped,  KeyClass::kChanged, KeyClass::kNotNeeded,
                            KeyClass::kRefused, KeyClass::kRemoved, KeyClass::kIgnored};
  for (const KeyClass kind : kAll) {
    if (class_name(kind) == name) return kind;
  }
  std::abort();  // a row of the table is wrong: the tests read all rows
}

Type type_of(std::string_view word) {
  if (word == "flag") return Type::kFlag;
  if (word == "switch") return Type::kSwitch;
  if (word == "int") return Type::kInt;
  return word == "float" ? Type::kFloat : Type::kText;
}

Count count_of(std::string_view& word) {
  const char last = word.back();
  Count count = word == "flag" || word == "switch" ? Count::kNone : Count::kOne;
  if (last == '+') count = Count::kSome;
  if (last == '*') count = Count::kAny;
  if (last == '3') count = Count::kThree;
  if (last == '+' || last == '*' || last == '3') word.remove_suffix(1);
  return count;
}

MegatronArgument row(std::string_view text) {
  MegatronArgument result;
  std::string_view names = take_until(text, ' ');
  while (!names.empty()) result.names.push_back(take_until(names, '|'));
  std::string_view form = take_until(text, ' ');
  result.count = count_of(form);
  result.type = type_of(form);
  const std::size_t open = text.find('{');
  if (open != std::string_view::npos) {
    std::string_view choices = text.substr(open + 1, text.size() - open - 2);
    while (!choices.empty()) result.choices.push_back(take_until(choices, ','));
  }
  result.fallback = without_blanks(text.substr(0, open));
  if (result.count == Count::kNone) result.fallback = "false";
  return result;
}

void add_rows(std::string_view rows, std::vector<MegatronArgument>& all) {
  KeyClass kind = KeyClass::kMapped;
  std::string_view note;
  while (!rows.empty()) {
    std::string_view line = take_until(rows, '\n');
    if (line.starts_with("= ")) {
      line.remove_prefix(2);
      kind = class_of(take_until(line, ' '));
      note = line;
      continue;
    }
    while (!line.empty()) {
      const std::string_view text = without_blanks(take_until(line, ';'));
      if (text.empty()) continue;
      all.push_back(row(text));
      all.back().kind = kind;
      all.back().note = note;
    }
  }
}

std::string json_text(std::string_view text) {
  HjsonNode node;
  node.kind = HjsonNode::Kind::kText;
  node.text = text;
  return to_json(node);
}

}  // namespace

const std::vector<MegatronArgument>& megatron_arguments() {
  static const std::vector<MegatronArgument> all = [] {
    std::vector<MegatronArgument> result;
    for (const std::string_view rows :
         {kMegatronModelRows, kMegatronTrainingRows, kMegatronRunRows, kMegatronOtherRows}) {
      add_rows(rows, result);
    }
    return result;
  }();
  return all;
}

const MegatronArgument* find_megatron_argument(std::string_view name) {
  static const std::map<std::string_view, const MegatronArgument*> all = [] {
    std::map<std::string_view, const MegatronArgument*> result;
    for (const MegatronArgument& argument : megatron_arguments()) {
      for (const std::string_view each : argument.names) result[each] = &argument;
    }
    return result;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

const std::vector<std::string_view>& megatron_argument_names() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> result;
    for (const MegatronArgument& argument : megatron_arguments()) {
      result.insert(result.end(), argument.names.begin(), argument.names.end());
    }
    return result;
  }();
  return all;
}

std::string argument_json(const MegatronArgument& argument, std::string_view word) {
  const bool number = argument.type == Type::kInt || argument.type == Type::kFloat;
  if (!number || !is_python_float(word)) return json_text(word);
  const bool plain = word.find_first_of("+nN ") == std::string_view::npos && word.back() != '.' &&
                     !word.starts_with('.') && !word.starts_with("-.");
  if (plain) return std::string(word);
  const double value = std::strtod(std::string(word).c_str(), nullptr);
  return std::isfinite(value) ? format_number(value) : json_text(word);
}

std::string default_json(const MegatronArgument& argument) {
  if (argument.fallback == "null" || argument.fallback == "false") {
    return std::string(argument.fallback);
  }
  if (argument.fallback == "\"\"") return "\"\"";
  if (argument.fallback.starts_with('[')) {
    std::string_view items = argument.fallback.substr(1, argument.fallback.size() - 2);
    std::string result;
    while (!items.empty()) {
      result += (result.empty() ? "" : ", ") + argument_json(argument, take_until(items, ','));
    }
    return "[" + result + "]";
  }
  return argument_json(argument, argument.fallback);
}

bool is_python_int(std::string_view text) {
  text = without_blanks(text);
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && text.size() < 19 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_python_float(std::string_view text) {
  const std::string copy(without_blanks(text));
  if (copy.empty() || copy.find_first_of("xXpP(") != std::string::npos) return false;
  char* end = nullptr;
  (void)std::strtod(copy.c_str(), &end);
  return *end == '\0';
}

}  // namespace sluice::migrate
