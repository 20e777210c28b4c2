#include "configs/migrate/deepspeed/deepspeed_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/format.hpp"
#include "configs/value.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;
using Read = std::variant<HjsonNode, Refusal>;

std::string lower(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return small;
}

std::string list_of(const std::vector<std::string_view>& words) {
  std::string list;
  for (const std::string_view word : words) list += (list.empty() ? "" : ", ") + std::string(word);
  return list;
}

std::string range_of(const DeepSpeedKey& key) {
  const std::string_view above = key.excludes_limits ? " above " : " >= ";
  const std::string_view below = key.excludes_limits ? " and below " : " and <= ";
  std::string range;
  if (key.least) range += std::string(above) + format_number(*key.least);
  if (key.most) range += std::string(below) + format_number(*key.most);
  return range;
}

std::string expected(const DeepSpeedKey& key) {
  switch (key.type) {
    case KeyType::kBool:
      return "true or false";
    case KeyType::kInt:
      return "a whole number" + range_of(key);
    case KeyType::kFloat:
      return "a number" + range_of(key);
    case KeyType::kIntOrAuto:
      return "\"auto\" or a whole number" + range_of(key);
    case KeyType::kText:
      return "text";
    case KeyType::kChoice:
      return "one of " + list_of(key.choices);
    case KeyType::kDtype:
      return "one of fp32, fp16, bf16";
    case KeyType::kList:
      return "a list";
    case KeyType::kTexts:
      return key.choices.empty() ? "a list of text" : "a list of " + list_of(key.choices);
    case KeyType::kObject:
    case KeyType::kSection:
      return "an object";
    case KeyType::kAny:
      break;
  }
  return "a value";
}

bool is_single(KeyType type) {
  return type == KeyType::kBool || type == KeyType::kInt || type == KeyType::kFloat ||
         type == KeyType::kIntOrAuto || type == KeyType::kChoice;
}

Refusal refuse(const DeepSpeedKey& key, const HjsonNode& value) {
  std::string found = printable(to_json(value));
  if (value.kind == Kind::kList || value.kind == Kind::kObject) found = kind_name(value.kind);
  if (value.kind == Kind::kList && is_single(key.type)) {
    found += ", which only DeepSpeed's autotuner takes as a search space";
  }
  const std::string remedy = expected(key) + (key.nullable ? ", or null" : "");
  return {"found " + found + "; write " + remedy};
}

HjsonNode integer_node(std::int64_t value) {
  HjsonNode node;
  node.kind = Kind::kNumber;
  node.integer = value;
  node.number = static_cast<double>(value);
  node.text = std::to_string(value);
  return node;
}

// Text as the number that pydantic reads; the node itself for anything else.
HjsonNode without_quotes(const DeepSpeedKey& key, const HjsonNode& value) {
  if (value.kind == Kind::kBool && !key.refuses_bool) return integer_node(value.boolean ? 1 : 0);
  if (value.kind != Kind::kText) return value;
  HjsonNode number = value_of_json(value.text);
  return number.kind == Kind::kNumber && number.text == value.text ? number : value;
}

Read read_bool(const DeepSpeedKey& key, const HjsonNode& value) {
  static constexpr std::array<std::string_view, 6> kTrue{"1", "on", "t", "true", "y", "yes"};
  static constexpr std::array<std::string_view, 6> kFalse{"0", "off", "f", "false", "n", "no"};
  HjsonNode node;
  node.kind = Kind::kBool;
  if (value.kind == Kind::kBool) return value;
  if (value.kind == Kind::kNumber && (value.number == 0 || value.number == 1)) {
    node.boolean = value.number == 1;
    return node;
  }
  if (value.kind == Kind::kText && key.python_values) {
    const std::string word = lower(value.text);
    node.boolean = std::find(kTrue.begin(), kTrue.end(), word) != kTrue.end();
    if (node.boolean || std::find(kFalse.begin(), kFalse.end(), word) != kFalse.end()) return node;
  }
  return refuse(key, value);
}

bool in_range(const DeepSpeedKey& key, double value) {
  if (key.excludes_limits) {
    return !(key.least && value <= *key.least) && !(key.most && value >= *key.most);
  }
  return !(key.least && value < *key.least) && !(key.most && value > *key.most);
}

Read read_number(const DeepSpeedKey& key, const HjsonNode& value) {
  // Text beside "auto" stays text.
  const bool converts = key.python_values && key.type != KeyType::kIntOrAuto;
  HjsonNode number = converts ? without_quotes(key, value) : value;
  const bool whole = key.type != KeyType::kFloat;
  // pydantic reads "5" and "5.0" as whole numbers, but not "5e8"; a validator of fp16 only "5".
  const std::string_view marks = key.refuses_bool ? ".eE" : "eE";
  const bool exponent =
      value.kind == Kind::kText && value.text.find_first_of(marks) != std::string::npos;
  if (number.kind != Kind::kNumber || (whole && (!number.integer || exponent))) {
    return refuse(key, value);
  }
  // A parameter of a Python function: 1e10 and above are float there.
  if (whole && !key.variants.empty() && number.is_float) {
    return Refusal{"found " + to_json(value) +
                   ", which DeepSpeed reads as float; write the number without exponent"};
  }
  if (!in_range(key, number.number)) {
    return Refusal{to_json(value) + " is out of range; write " + expected(key)};
  }
  return number;
}

Read read_choice(const DeepSpeedKey& key, const HjsonNode& value) {
  if (value.kind != Kind::kText) return refuse(key, value);
  for (const std::string_view choice : key.choices) {
    if (value.text == choice || (key.any_case && lower(value.text) == lower(choice))) {
      HjsonNode node = value;
      node.text = choice;
      return node;
    }
  }
  return refuse(key, value);
}

Read read_dtype(const DeepSpeedKey& key, const HjsonNode& value) {
  static constexpr std::array<std::array<std::string_view, 5>, 4> kNames{{
      {"fp32", "float32", "float", "torch.float32", "fp32"},
      {"fp16", "float16", "half", "torch.float16", "fp16"},
      {"bf16", "bfloat16", "torch.bfloat16", "bf16", "bf16"},
      {"int8", "torch.int8", "int8", "int8", "int8"},
  }};
  for (const auto& names : kNames) {
    if (value.kind != Kind::kText) break;
    if (std::find(names.begin(), names.end(), value.text) == names.end()) continue;
    HjsonNode node = value;
    node.text = names.front();
    return node;
  }
  return refuse(key, value);
}

Read read_texts(const DeepSpeedKey& key, const HjsonNode& value) {
  HjsonNode node = value;
  const bool single = value.kind == Kind::kText && key.python_values && key.choices.empty();
  if (single) {  // leaf_module takes one name for a list of one
    node.kind = Kind::kList;
    node.text.clear();
    node.items = {value};
  }
  if (node.kind != Kind::kList) return refuse(key, value);
  for (const HjsonNode& item : node.items) {
    if (item.kind != Kind::kText) return refuse(key, value);
    const auto& known = key.choices;
    if (known.empty() || std::find(known.begin(), known.end(), item.text) != known.end()) continue;
    return Refusal{"found " + in_quotes(item.text) + " in the list; write " + expected(key)};
  }
  return node;
}

Read read_kind(const DeepSpeedKey& key, const HjsonNode& value, Kind kind) {
  if (value.kind == kind) return value;
  return refuse(key, value);
}

}  // namespace

bool is_auto(const HjsonNode& value) { return value.kind == Kind::kText && value.text == "auto"; }

HjsonNode value_of_json(std::string_view json) {
  // The reader takes objects: { "v": json }.
  const HjsonDocument document = read_hjson("{\"v\":" + std::string(json) + "\n}");
  const HjsonNode* value = document.problems.empty() ? document.root.find("v") : nullptr;
  if (value != nullptr && document.root.entries.size() == 1) return *value;
  HjsonNode text;
  text.kind = Kind::kText;
  text.text = json;
  return text;
}

bool same_value(const HjsonNode& a, const HjsonNode& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  switch (a.kind) {
    case Kind::kNull:
      return true;
    case Kind::kBool:
      return a.boolean == b.boolean;
    case Kind::kNumber:
      return a.number == b.number;
    case Kind::kText:
      return a.text == b.text;
    case Kind::kList:
      return std::equal(a.items.begin(), a.items.end(), b.items.begin(), same_value);
    case Kind::kObject:
      break;
  }
  return to_json(a) == to_json(b);
}

Read read_value(const DeepSpeedKey& key, const HjsonNode& value) {
  if (value.kind == Kind::kNull && key.nullable) return value;
  if (is_auto(value) && (key.keeps_auto || key.type == KeyType::kIntOrAuto)) return value;
  switch (key.type) {
    case KeyType::kBool:
      return read_bool(key, value);
    case KeyType::kInt:
    case KeyType::kFloat:
    case KeyType::kIntOrAuto:
      return read_number(key, value);
    case KeyType::kText:
      return read_kind(key, value, Kind::kText);
    case KeyType::kChoice:
      return read_choice(key, value);
    case KeyType::kDtype:
      return read_dtype(key, value);
    case KeyType::kList:
      return read_kind(key, value, Kind::kList);
    case KeyType::kTexts:
      return read_texts(key, value);
    case KeyType::kObject:
      return read_kind(key, value, Kind::kObject);
    case KeyType::kSection:
    case KeyType::kAny:
      break;
  }
  return value;
}

}  // namespace sluice::migrate
